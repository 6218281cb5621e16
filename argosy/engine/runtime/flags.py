"""Flags of the process: Paddle's FLAGS_*, from the environment or `set_flags`."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.engine import env
from argosy.engine.errors import ArgumentTypeError, ConfigError, nearest
from argosy.engine.kernels import choices
from argosy.engine.log import logger
from argosy.engine.runtime.paddle_flags import WITHOUT_EFFECT

_defaults: dict[str, bool] = {"FLAGS_check_nan_inf": False, choices.FLAG: False}
_set: dict[str, bool] = {}
_ignored: dict[str, Any] = {}
"""The values of flags without effect, which get_flags returns."""


def get_flags(flags: str | list[str] | tuple[str, ...]) -> dict[str, Any]:
    """The values of these flags; of a flag that has no effect in Argosy the value that was set."""
    names = [flags] if isinstance(flags, str) else flags
    return {name: _ignored[name] if name in _ignored else flag(name) for name in names}


def set_flags(flags: dict[str, Any]) -> None:
    """Set flags for this process; overrides the environment.

    A flag of Paddle that has no effect in Argosy is logged when it is set first; an unknown name raises.
    """
    if not isinstance(flags, dict):
        raise ArgumentTypeError(
            f"set_flags was given a {type(flags).__name__}; give a dict of names and values"
        )
    without_effect = {name: value for name, value in flags.items() if name in WITHOUT_EFFECT}
    used = {name: value for name, value in flags.items() if name not in without_effect}
    for name, value in used.items():
        flag(name)
        if not isinstance(value, bool | int) or value not in (0, 1):
            raise ConfigError(f"{name} = {value!r} is not a boolean; use True or False")
    _set.update({name: bool(value) for name, value in used.items()})
    for name, value in without_effect.items():
        if name not in _ignored:
            logger.info("%s = %r has no effect in Argosy", name, value)
        _ignored[name] = value
    if choices.FLAG in flags:
        choices.of_process().search(flag(choices.FLAG))


def known() -> list[str]:
    """The names of the flags."""
    return list(_defaults)


def flag(name: str) -> bool:
    """One flag's value."""
    if name in WITHOUT_EFFECT:
        raise ConfigError(f"flag {name!r} has no effect in Argosy and no value; set it before get_flags")
    if name not in _defaults:
        raise ConfigError(f"unknown flag {name!r}{nearest(name, [*_defaults, *sorted(WITHOUT_EFFECT)])}")
    return _set[name] if name in _set else env.flag(name, _defaults[name])

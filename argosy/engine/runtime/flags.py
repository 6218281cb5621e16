"""Flags of the process: Paddle's FLAGS_*, from the environment or `set_flags`."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.engine import env
from argosy.engine.errors import ConfigError, nearest
from argosy.engine.kernels import choices

_defaults: dict[str, bool] = {"FLAGS_check_nan_inf": False, choices.FLAG: False}
_set: dict[str, bool] = {}


def get_flags(flags: str | list[str] | tuple[str, ...]) -> dict[str, bool]:
    """The values of these flags."""
    return {name: flag(name) for name in ([flags] if isinstance(flags, str) else flags)}


def set_flags(flags: dict[str, Any]) -> None:
    """Set flags for this process; overrides the environment."""
    for name, value in flags.items():
        flag(name)
        if not isinstance(value, bool | int) or value not in (0, 1):
            raise ConfigError(f"{name} = {value!r} is not a boolean; use True or False")
    _set.update({name: bool(value) for name, value in flags.items()})
    if choices.FLAG in flags:
        choices.of_process().search(flag(choices.FLAG))


def known() -> list[str]:
    """The names of the flags."""
    return list(_defaults)


def flag(name: str) -> bool:
    """One flag's value."""
    if name not in _defaults:
        raise ConfigError(f"unknown flag {name!r}{nearest(name, _defaults)}")
    return _set[name] if name in _set else env.flag(name, _defaults[name])

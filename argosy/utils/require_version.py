"""utils.require_version: the versions of Paddle that a script works with."""

# SPDX-License-Identifier: Apache-2.0
import re

from argosy.engine import version
from argosy.engine.errors import ConfigError


def require_version(min_version: str, max_version: str | None = None) -> None:
    """Raise a ConfigError unless the version of Paddle whose API Argosy has, 2.0.0, is in this range."""
    installed = _numbers("installed version", version.PADDLE)
    least = _numbers("min_version", min_version)
    most = None if max_version is None else _numbers("max_version", max_version)
    if most is not None and least > most:
        raise ConfigError(f"require_version: min_version={min_version} is above max_version={max_version}")
    if installed < least or (most is not None and installed > most):
        wanted = f"{min_version} or later" if max_version is None else f"{min_version} to {max_version}"
        raise ConfigError(f"the script needs Paddle {wanted}; Argosy has the API of Paddle {version.PADDLE}")


def _numbers(what: str, text: object) -> tuple[int, ...]:
    if not isinstance(text, str):
        raise TypeError(f"require_version: {what} is {text!r}; give a string such as '2.0.0'")
    if not re.fullmatch(r"\d+(\.\d+){0,3}", text):
        raise ConfigError(f"require_version: {what}={text!r} is no version; give numbers, such as '2.0.0'")
    parts = [int(part) for part in text.split(".")]
    return tuple(parts + [0] * (4 - len(parts)))

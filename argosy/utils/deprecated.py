"""utils.deprecated: a decorator for functions that will be removed."""

# SPDX-License-Identifier: Apache-2.0
import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from argosy.engine.errors import ConfigError

_Function = TypeVar("_Function", bound=Callable[..., Any])


def deprecated(
    update_to: str = "", since: str = "", reason: str = "", level: int = 0
) -> Callable[[_Function], _Function]:
    """Warn at each call that the function is deprecated; with level=2 raise instead."""

    def decorate(function: _Function) -> _Function:
        message = f"{function.__module__}.{function.__name__} is deprecated"
        message += f" since {since}" if since else ""
        message += f"; use {update_to}" if update_to else ""
        message += f" ({reason})" if reason else ""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if level == 2:
                raise ConfigError(message)
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]  # the function with a check before it

    return decorate

"""Checks of arguments: each gives the value back, or raises a ConfigError that says what would be right."""

# SPDX-License-Identifier: Apache-2.0
import math
import numbers
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch

from argosy.engine.errors import ConfigError

_Function = TypeVar("_Function", bound=Callable[..., float])


def plain(value: Any) -> Any:
    """An array or tensor of one element as a Python number; anything else as it stands."""
    is_array = isinstance(value, np.generic | np.ndarray | torch.Tensor)
    return value.item() if is_array and math.prod(value.shape) == 1 else value


def number(
    what: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    finite: bool = True,
) -> float:
    """`value` as a float, if it is a number within the limits; else a ConfigError about `what`."""
    found = plain(value)
    if isinstance(found, numbers.Real) and not isinstance(found, bool):
        made = float(found)
        if (
            (math.isfinite(made) or not finite)
            and (above is None or made > above)
            and (least is None or made >= least)
            and (below is None or made < below)
        ):
            return made
    limits = {"above": above, "of at least": least, "below": below}
    words = " and ".join(f"{word} {limit:g}" for word, limit in limits.items() if limit is not None)
    raise ConfigError(f"{what} is {value!r}; use a {'finite ' * finite}number {words}".rstrip())


def integer(what: str, value: object, *, least: int | None = None) -> int:
    """`value` as an int, if it is a whole number of at least `least`; else a ConfigError about `what`."""
    found = plain(value)
    whole = isinstance(found, numbers.Integral) and not isinstance(found, bool)
    if not whole or (least is not None and found < least):
        limit = "" if least is None else f" of at least {least}"
        raise ConfigError(f"{what} is {value!r}; use a whole number{limit}")
    return int(found)


def listed(what: str, values: object, *, least: float | None = None) -> list[float]:
    """`values` as a list of floats, if it is a list or a tuple of numbers of at least `least`."""
    if not isinstance(values, list | tuple | np.ndarray):
        raise ConfigError(f"{what} is {values!r}; use a list of numbers")
    return [number(f"{what}[{i}]", value, least=least) for i, value in enumerate(values)]


def rising(what: str, values: object, *, strictly: bool = True) -> list[float]:
    """`values` as a list of floats, if none is below the one before, or `strictly`, each above it."""
    found = listed(what, values)
    if found != sorted(set(found) if strictly else found):
        rule = "each above the one before" if strictly else "none below the one before"
        raise ConfigError(f"{what} is {values!r}; use numbers in order, {rule}")
    return found


def one_of(what: str, value: object, *known: str) -> str:
    """`value` in lower case, if it is one of the known words."""
    if not isinstance(value, str) or value.lower() not in known:
        raise ConfigError(f"{what} is {value!r}; use one of {', '.join(known)}")
    return value.lower()


def function(what: str, value: _Function) -> _Function:
    """`value`, if it can be called."""
    if not callable(value):
        raise ConfigError(f"{what} is {value!r}; use a function that takes and returns a number")
    return value

"""Argument checks: each returns the value, or raises a ConfigError that names the valid values.

A value of a wrong type raises an ArgumentTypeError, which is a ConfigError and a TypeError.
"""

# SPDX-License-Identifier: Apache-2.0
import math
import numbers
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch

from argosy.engine.errors import ArgumentTypeError, ConfigError

_Function = TypeVar("_Function", bound=Callable[..., float])


def plain(value: Any) -> Any:
    """An array or tensor of one element as a Python number; anything else unchanged."""
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
    scalar = plain(value)
    is_number = isinstance(scalar, numbers.Real) and not isinstance(scalar, bool)
    if is_number:
        result = float(scalar)
        if (
            (math.isfinite(result) or not finite)
            and (above is None or result > above)
            and (least is None or result >= least)
            and (below is None or result < below)
        ):
            return result
    limits = {"above": above, "of at least": least, "below": below}
    bounds = " and ".join(f"{word} {limit:g}" for word, limit in limits.items() if limit is not None)
    raise _error(is_number)(f"{what} is {value!r}; use a {'finite ' * finite}number {bounds}".rstrip())


def integer(what: str, value: object, *, least: int | None = None) -> int:
    """`value` as an int, if it is an integer of at least `least`; else a ConfigError about `what`."""
    scalar = plain(value)
    is_integer = isinstance(scalar, numbers.Integral) and not isinstance(scalar, bool)
    if not is_integer or (least is not None and scalar < least):
        limit = "" if least is None else f" of at least {least}"
        raise _error(is_integer)(f"{what} is {value!r}; use an integer{limit}")
    return int(scalar)


def listed(what: str, values: object, *, least: float | None = None) -> list[float]:
    """`values` as a list of floats, if it is a list or a tuple of numbers of at least `least`."""
    if not isinstance(values, list | tuple | np.ndarray):
        raise ArgumentTypeError(f"{what} is {values!r}; use a list of numbers")
    return [number(f"{what}[{i}]", value, least=least) for i, value in enumerate(values)]


def rising(what: str, values: object, *, strictly: bool = True) -> list[float]:
    """`values` as a list of floats, if none is below the one before, or `strictly`, each above it."""
    numbers = listed(what, values)
    if numbers != sorted(set(numbers) if strictly else numbers):
        rule = "each above the one before" if strictly else "none below the one before"
        raise ConfigError(f"{what} is {values!r}; use numbers in order, {rule}")
    return numbers


def one_of(what: str, value: object, *known: str) -> str:
    """`value` in lower case, if it is one of the known words."""
    if not isinstance(value, str) or value.lower() not in known:
        raise _error(isinstance(value, str))(f"{what} is {value!r}; use one of {', '.join(known)}")
    return value.lower()


def function(what: str, value: _Function) -> _Function:
    """`value`, if it is callable."""
    if not callable(value):
        raise ArgumentTypeError(f"{what} is {value!r}; use a function that takes and returns a number")
    return value


def _error(has_type: bool) -> type[ConfigError]:
    """The class of the error about a value that has the right type, or not."""
    return ConfigError if has_type else ArgumentTypeError

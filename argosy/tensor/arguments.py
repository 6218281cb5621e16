"""Conversion of common arguments: sizes, axes, dtypes."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from argosy.engine.errors import ArgumentTypeError, ConfigError, UnsupportedError
from argosy.engine.ir.dtypes import to_dtype
from argosy.engine.ir.known_values import known_values
from argosy.engine.ir.variable import Variable

Size = int | torch.SymInt
Axes = int | Sequence[int] | None


def sizes(what: str, shape: Any) -> list[Size]:
    """A shape as a list of numbers and symbols; a ConfigError if a size depends on the data that is fed.

    A Variable, or an element that is one, must have a known value: that of `shape(x)`, of constants, and of arithmetic
    on them.
    """
    if isinstance(shape, Variable):
        return _known(what, shape)
    listed = list(shape) if isinstance(shape, list | tuple | np.ndarray) else [shape]
    return [number(what, size) for size in listed]


def number(what: str, value: Any) -> Size:
    """An integer, or a symbol such as `x.size(0)`; a Variable must have one element, whose value is known."""
    if isinstance(value, Variable):
        known = _known(what, value)
        if len(known) != 1:
            raise ConfigError(
                f"{what} holds Variable {value.name!r} of {len(known)} elements; use one with one"
            )
        return known[0]
    if isinstance(value, torch.SymInt):
        return value
    try:
        return value.__index__()  # type: ignore[no-any-return]  # int, bool and NumPy's integers
    except (AttributeError, TypeError):
        raise ArgumentTypeError(f"{what} holds {value!r}; use whole numbers") from None


def _known(what: str, variable: Variable) -> list[Size]:
    values = known_values(variable)
    if values is None:
        raise UnsupportedError(
            f"{what} holds Variable {variable.name!r}, whose value is not known while the program is built; "
            "use a number, -1, a constant, or the size of a dimension of another Variable: x.size(0), shape(x)[0]"
        )
    return values


def axes(what: str, axis: Any, ndim: int) -> list[int]:
    """The axes as non-negative numbers; None means all axes."""
    if axis is None:
        return list(range(ndim))
    return [one_axis(what, a, ndim) for a in sizes(what, axis)]


def one_axis(what: str, axis: Any, ndim: int) -> int:
    """The axis as a non-negative number; raises a ConfigError if it is out of range."""
    position = number(what, axis)
    if not isinstance(position, int) or not -ndim <= position < ndim:
        raise ConfigError(
            f"{what}: axis {position} of a variable with {ndim} dimensions; use {-ndim} to {ndim - 1}"
        )
    return position % ndim


def chosen_dtype(dtype: Any, default: torch.dtype | None = None) -> torch.dtype:
    """The dtype; None means torch's default dtype, float32 unless it was changed."""
    return (default or torch.get_default_dtype()) if dtype is None else to_dtype(dtype)


def no_scalar(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Wrap a function to return shape [1] where torch's has shape []: Paddle 2.0 has no 0-d tensors."""

    def run(*args: Any, **kwargs: Any) -> torch.Tensor:
        out = function(*args, **kwargs)
        return out.reshape(1) if out.ndim == 0 else out

    return run

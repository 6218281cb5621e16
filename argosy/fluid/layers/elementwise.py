"""Arithmetic and comparison of two variables, element by element.

`axis` is the dimension of the larger variable at which the smaller one starts:

    x [2, 3, 4, 5]                          x [2, 3, 4, 5]
    y       [4, 5]   axis=-1: at the end    y    [3, 4]      axis=1
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import LayerBuilder

Binary = Callable[[Tensor, Tensor], Tensor]


def elementwise_add(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Any:
    """x + y; the sum is `name`.tmp_0, its activation `name`.tmp_1."""
    return _elementwise("elementwise_add", torch.add, x, y, axis, act, name)


def elementwise_sub(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Any:
    """x - y."""
    return _elementwise("elementwise_sub", torch.sub, x, y, axis, act, name)


def elementwise_mul(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Any:
    """x · y, element by element."""
    return _elementwise("elementwise_mul", torch.mul, x, y, axis, act, name)


def elementwise_div(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Any:
    """x / y; integers give integers, rounded towards zero."""
    return _elementwise("elementwise_div", _divide, x, y, axis, act, name)


def elementwise_max(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Any:
    """The larger of x and y."""
    return _elementwise("elementwise_max", torch.maximum, x, y, axis, act, name)


def elementwise_min(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Any:
    """The smaller of x and y."""
    return _elementwise("elementwise_min", torch.minimum, x, y, axis, act, name)


def elementwise_pow(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Any:
    """x to the power of y."""
    return _elementwise("elementwise_pow", torch.pow, x, y, axis, act, name)


def elementwise_mod(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Any:
    """The remainder of x / y; it has the sign of y."""
    return _elementwise("elementwise_mod", torch.remainder, x, y, axis, act, name)


def elementwise_floordiv(
    x: Variable, y: Variable, axis: int = -1, act: str | None = None, name: str | None = None
) -> Any:
    """x / y rounded down, as Python's //; Paddle rounds towards zero."""
    return _elementwise("elementwise_floordiv", torch.floor_divide, x, y, axis, act, name)


def less_than(
    x: Variable,
    y: Variable,
    force_cpu: bool | None = None,
    cond: Variable | None = None,
    name: str | None = None,
) -> Any:
    """x < y; written to the bool variable `cond`, if one is given."""
    return _compare("less_than", torch.lt, x, y, cond, name)


def less_equal(x: Variable, y: Variable, cond: Variable | None = None, name: str | None = None) -> Any:
    """x <= y; written to the bool variable `cond`, if one is given."""
    return _compare("less_equal", torch.le, x, y, cond, name)


def greater_than(x: Variable, y: Variable, cond: Variable | None = None, name: str | None = None) -> Any:
    """x > y; written to the bool variable `cond`, if one is given."""
    return _compare("greater_than", torch.gt, x, y, cond, name)


def greater_equal(x: Variable, y: Variable, cond: Variable | None = None, name: str | None = None) -> Any:
    """x >= y; written to the bool variable `cond`, if one is given."""
    return _compare("greater_equal", torch.ge, x, y, cond, name)


def equal(x: Variable, y: Variable, cond: Variable | None = None, name: str | None = None) -> Any:
    """x == y; written to the bool variable `cond`, if one is given."""
    return _compare("equal", torch.eq, x, y, cond, name)


def not_equal(x: Variable, y: Variable, cond: Variable | None = None, name: str | None = None) -> Any:
    """x != y; written to the bool variable `cond`, if one is given."""
    return _compare("not_equal", torch.ne, x, y, cond, name)


def _elementwise(
    kind: str, function: Binary, x: Variable, y: Variable, axis: int, act: str | None, name: str | None
) -> Any:
    layer = LayerBuilder(kind, name)
    return layer.activate(layer.run(lambda a, b: function(*_aligned(kind, a, b, axis)), x, y), act)


def _compare(
    kind: str, function: Binary, x: Variable, y: Variable, cond: Variable | None, name: str | None
) -> Any:
    layer = LayerBuilder(kind, name)
    result: Variable = layer.run(function, x, y)
    if cond is None:
        return result
    return layer.run(Tensor.copy_, cond, result)


def _aligned(kind: str, x: Tensor, y: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Append dimensions of size 1 to the smaller one, so that its first dimension aligns with `axis` of the larger."""
    if axis == -1 or x.ndim == y.ndim:
        return x, y
    if x.ndim < y.ndim:
        larger, smaller = _aligned(kind, y, x, axis)
        return smaller, larger
    trailing = x.ndim - axis - y.ndim
    if axis < 0 or trailing < 0:
        raise ConfigError(
            f"{kind}: a variable with {y.ndim} dimensions cannot be aligned at axis={axis} of one with {x.ndim}; "
            f"use an axis from 0 to {x.ndim - y.ndim}, or -1 for the end"
        )
    return x, y.reshape(*y.shape, *[1] * trailing)


def _divide(x: Tensor, y: Tensor) -> Tensor:
    is_integer = not (x.is_floating_point() or y.is_floating_point())
    return torch.div(x, y, rounding_mode="trunc" if is_integer else None)

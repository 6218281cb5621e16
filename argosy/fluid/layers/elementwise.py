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
from argosy.framework.variant import row
from argosy.tensor import creation

Function = Callable[[Tensor, Tensor], Tensor]


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


def _elementwise(
    kind: str,
    function: Function,
    x: Variable,
    y: Variable,
    axis: int = -1,
    act: str | None = None,
    name: str | None = None,
) -> Any:
    layer = LayerBuilder(kind, name)
    return layer.activate(layer.run(lambda a, b: function(*_aligned(kind, a, b, axis)), x, y), act)


def _arithmetic(own_name: str, function: Function, doc: str) -> Callable[..., Any]:
    return row(own_name, doc, _elementwise, own_name, function)


elementwise_add = _arithmetic(
    "elementwise_add", torch.add, "x + y; the sum is `name`.tmp_0, its activation `name`.tmp_1."
)
elementwise_sub = _arithmetic("elementwise_sub", torch.sub, "x - y.")
elementwise_mul = _arithmetic("elementwise_mul", torch.mul, "x · y, element by element.")
elementwise_div = _arithmetic(
    "elementwise_div", _divide, "x / y; integers give integers, rounded towards zero."
)
elementwise_max = _arithmetic("elementwise_max", torch.maximum, "The larger of x and y.")
elementwise_min = _arithmetic("elementwise_min", torch.minimum, "The smaller of x and y.")
elementwise_pow = _arithmetic("elementwise_pow", torch.pow, "x to the power of y.")
elementwise_mod = _arithmetic(
    "elementwise_mod", torch.remainder, "The remainder of x / y; it has the sign of y."
)
elementwise_floordiv = _arithmetic(
    "elementwise_floordiv",
    torch.floor_divide,
    "x / y rounded down, as Python's //; Paddle rounds towards zero.",
)


def _compare(
    kind: str,
    function: Function,
    x: Variable,
    y: Variable,
    force_cpu: bool | None = None,
    cond: Variable | None = None,
    name: str | None = None,
) -> Any:
    layer = LayerBuilder(kind, name)
    result: Variable = layer.run(function, x, y)
    if cond is None:
        return result
    return creation.assign(result, cond)


def _comparison(
    own_name: str, function: Function, operator: str, parameters: str = "x y cond name"
) -> Callable[..., Any]:
    doc = f"x {operator} y; written to the bool variable `cond`, if one is given."
    return row(own_name, doc, _compare, own_name, function, parameters=parameters)


less_than = _comparison("less_than", torch.lt, "<", "x y force_cpu cond name")
less_equal = _comparison("less_equal", torch.le, "<=")
greater_than = _comparison("greater_than", torch.gt, ">")
greater_equal = _comparison("greater_equal", torch.ge, ">=")
equal = _comparison("equal", torch.eq, "==")
not_equal = _comparison("not_equal", torch.ne, "!=")

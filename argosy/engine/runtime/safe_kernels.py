"""Functions in the place of kernels that end the process, or raise, where eager mode gives a result."""

# SPDX-License-Identifier: Apache-2.0
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from argosy.engine.ops.order import order_of

aten = torch.ops.aten
_batch_norm_backward = aten.native_batch_norm_backward.default._op
_group_norm_backward = aten.native_group_norm_backward.default._op


_CONTIGUOUS = (
    aten._weight_norm_interface.default,
    aten._weight_norm_interface_backward.default,
    aten.fractional_max_pool2d_backward.default,
    aten.nll_loss2d_backward.default,
)


def _native_batch_norm_backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, *rest: Any
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """ATen's kernel divides by the number of rows, which eager mode never lets be 0."""
    if x.numel():
        return _batch_norm_backward(dy, x, weight, *rest)  # type: ignore[no-any-return]  # an op
    output_mask = rest[-1]
    channels = x.new_zeros(x.shape[1]) if weight is None else torch.zeros_like(weight)
    made = torch.zeros_like(x), channels, channels.clone()
    return tuple(one if wanted else None for one, wanted in zip(made, output_mask, strict=True))  # type: ignore[return-value]  # three


def _native_group_norm_backward(
    dy: Tensor, x: Tensor, *rest: Any
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """ATen's kernel takes dy and x for dense and in the same order, which autograd's formula sees to in eager mode.

    In channels_last it also reads memory that it does not have, if the gradient of x is not wanted.
    """
    *others, (wants_dx, wants_dweight, wants_dbias) = rest
    order = order_of(x)
    output_mask = [wants_dx or order is not torch.contiguous_format, wants_dweight, wants_dbias]
    dx, dweight, dbias = _group_norm_backward(
        dy.contiguous(memory_format=order), x.contiguous(memory_format=order), *others, output_mask
    )
    return dx if wants_dx else None, dweight, dbias


def _of_contiguous(op: OpOverload) -> Callable[..., Any]:
    """ATen's kernel takes its arguments for contiguous; passes may have laid images out in channels_last."""
    run = op._op

    def function(*args: Any) -> Any:
        return run(*(a.contiguous() if isinstance(a, Tensor) else a for a in args))

    return function


def _divide(a: float, b: float) -> float:
    """a / b for sizes, by IEEE 754 as in C++: the variance of one row divides by 0 and is NaN."""
    if b:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


SAFE: dict[Any, Callable[..., Any]] = {
    aten.native_batch_norm_backward.default: _native_batch_norm_backward,
    aten.native_group_norm_backward.default: _native_group_norm_backward,
    **{op: _of_contiguous(op) for op in _CONTIGUOUS},
    operator.truediv: _divide,
}
"""The target of a node -> what the step calls instead."""

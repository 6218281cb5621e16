"""Functions in the place of kernels that end the process, or raise, where eager mode gives a result."""

# SPDX-License-Identifier: Apache-2.0
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
_batch_norm_backward = aten.native_batch_norm_backward.default._op


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


def _divide(a: float, b: float) -> float:
    """a / b for sizes, by IEEE 754 as in C++: the variance of one row divides by 0 and is NaN."""
    if b:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


SAFE: dict[Any, Callable[..., Any]] = {
    aten.native_batch_norm_backward.default: _native_batch_norm_backward,
    operator.truediv: _divide,
}
"""The target of a node -> what the step calls instead."""

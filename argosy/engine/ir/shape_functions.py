"""Shapes of ops whose fake kernel torch lacks, has for known sizes only, or computes at length.

torch's fake batch norm runs a decomposition of some forty ops, and gives a transposed result where the kernel gives a
contiguous one.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from argosy.engine.ops.order import empty_as

aten = torch.ops.aten
_NO_REDUCTION = 0


def _like_input(gradient: Tensor, x: Tensor, *rest: Any, **kwargs: Any) -> Tensor:
    return x.new_empty(x.shape)


def _multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """torch's fake kernel has [1] for the loss of a vector."""
    is_batch = x.ndim > 1 and reduction == _NO_REDUCTION
    return x.new_empty(x.shape[:1] if is_batch else []), x.new_empty(target.shape)


def _native_batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    kind, count = x.dtype if weight is None else weight.dtype, x.shape[1] if training else 0
    return empty_as(x), x.new_empty([count], dtype=kind), x.new_empty([count], dtype=kind)


def _native_batch_norm_backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, *rest: Any
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    output_mask = rest[-1]
    kind = x.dtype if weight is None else weight.dtype
    dx = empty_as(x) if output_mask[0] else None
    dweight, dbias = (x.new_empty([x.shape[1]], dtype=kind) if wanted else None for wanted in output_mask[1:])
    return dx, dweight, dbias


def _upsample_backward(dy: Tensor, output_size: Any, input_size: list[Any], *rest: Any) -> Tensor:
    return dy.new_empty(input_size)


_SHAPES: dict[Any, Callable[..., Any]] = {
    aten.multilabel_margin_loss_forward.default: _multilabel_margin_loss,
    aten.multilabel_margin_loss_backward.default: _like_input,
    aten.multi_margin_loss_backward.default: _like_input,
    aten._upsample_bicubic2d_aa_backward.default: _upsample_backward,
    aten.native_batch_norm.default: _native_batch_norm,
    aten.native_batch_norm_backward.default: _native_batch_norm_backward,
    aten.fractional_max_pool2d_backward.default: _like_input,
    aten.fractional_max_pool3d_backward.default: _like_input,
}


def shape_function(target: Any) -> Callable[..., Any]:
    """What to call on fake tensors for a node's target: the target itself, unless it has another one here."""
    function: Callable[..., Any] = _SHAPES.get(target, target)
    return function

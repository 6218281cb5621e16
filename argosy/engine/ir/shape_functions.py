"""Shapes of ops whose fake kernel torch lacks, has for known sizes only, or computes at length.

torch's fake batch norm runs a decomposition of some forty ops, and gives a transposed result where the kernel gives a
contiguous one.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import _config as symbolic_config

from argosy.engine.ir.size_env import SizeEnv
from argosy.engine.ops.order import empty_as

aten = torch.ops.aten
_NO_REDUCTION = 0
_VIEWS = frozenset({aten.view.default, aten._unsafe_view.default, aten.reshape.default})


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


def _product(dy: Tensor, x: Tensor, *rest: Any, **kwargs: Any) -> Tensor:
    """An elementwise kernel lays its result out as its first argument; decompositions compute in other orders."""
    return dy * x


def _elu_backward(dy: Tensor, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Tensor) -> Tensor:
    return dy * x


_SHAPES: dict[Any, Callable[..., Any]] = {
    aten.multilabel_margin_loss_forward.default: _multilabel_margin_loss,
    aten.multilabel_margin_loss_backward.default: _like_input,
    aten.multi_margin_loss_backward.default: _like_input,
    aten._upsample_bicubic2d_aa_backward.default: _upsample_backward,
    aten.elu_backward.default: _elu_backward,
    aten.native_dropout_backward.default: _product,
    aten.hardswish_backward.default: _product,
    aten.softplus_backward.default: _product,
    aten.hardtanh_backward.default: _product,
    aten.hardsigmoid_backward.default: _product,
    aten.logit_backward.default: _product,
    aten.native_batch_norm.default: _native_batch_norm,
    aten.native_batch_norm_backward.default: _native_batch_norm_backward,
    aten.fractional_max_pool2d_backward.default: _like_input,
    aten.fractional_max_pool3d_backward.default: _like_input,
}


def fake_result(target: Any, args: Any, kwargs: Any, mode: FakeTensorMode) -> Any:
    """What a node's target gives for these fake tensors; the caller has entered the mode."""
    function: Callable[..., Any] = _SHAPES.get(target, target)
    env = mode.shape_env
    if not isinstance(env, SizeEnv):
        return function(*args, **kwargs)
    if target in _VIEWS:
        with _exact_sizes():
            return function(*args, **kwargs)
    return env.memo.run(mode, target, function, args, kwargs, is_muted=env.is_muted)


@contextmanager
def _exact_sizes() -> Iterator[None]:
    """Let the shape function of a view return the sizes that were asked for: x [N, 8] as [-1, 5, 8] is [N/5, 5, 8].

    torch's other shape function splits and merges dimensions, and gives N // (N // 5) for the 5.
    """
    before = symbolic_config.backed_size_oblivious
    symbolic_config.backed_size_oblivious = True
    try:
        yield
    finally:
        symbolic_config.backed_size_oblivious = before

"""Shape functions of ops whose fake kernel is missing in torch, needs known sizes, is slow, or differs from the kernel.

torch's fake batch norm, for example, runs a decomposition of some forty ops, and returns a transposed result where the
kernel returns a contiguous one.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import _config as symbolic_config

from argosy.engine import process_effects
from argosy.engine.ir.shape_memo import run_with_numbers
from argosy.engine.ir.size_env import SizeEnv
from argosy.engine.ops.memory_format import empty_as, memory_format_of

aten = torch.ops.aten
_NO_REDUCTION = 0
_VIEWS = frozenset({aten.view.default, aten._unsafe_view.default, aten.reshape.default})


def _like_input(gradient: Tensor, x: Tensor, *rest: Any, **kwargs: Any) -> Tensor:
    return x.new_empty(x.shape)


def _multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """torch's fake kernel returns shape [1] for the loss of a vector."""
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
    """An elementwise kernel has the strides of its first argument; decompositions reorder the arguments."""
    return dy * x


def _elu_backward(dy: Tensor, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Tensor) -> Tensor:
    return dy * x


def _rrelu_backward(
    dy: Tensor, x: Tensor, noise: Tensor, lower: float, upper: float, training: bool, is_result: bool
) -> Tensor:
    return noise * dy if training else x * dy


def _log_softmax_backward(dy: Tensor, y: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    return y.new_empty(y.shape, dtype=dtype)


def _elementwise_loss_backward(dy: Tensor, x: Tensor, target: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(torch.broadcast_shapes(x.shape, target.shape))


def _binary_cross_entropy(x: Tensor, target: Tensor, weight: Any = None, reduction: int = 1) -> Tensor:
    return torch.empty_like(x) if reduction == _NO_REDUCTION else x.new_empty([])


def _binary_cross_entropy_backward(dy: Tensor, x: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(x)


def _layer_norm_backward(dy: Tensor, x: Tensor, *rest: Any) -> Any:
    return aten.native_layer_norm_backward.default(dy.contiguous(), x.contiguous(), *rest)


def _group_norm_backward(dy: Tensor, x: Tensor, *rest: Any) -> Any:
    """With the same conversions as in runtime/safe_kernels.py."""
    memory_format = memory_format_of(x)
    inputs = dy.contiguous(memory_format=memory_format), x.contiguous(memory_format=memory_format)
    return aten.native_group_norm_backward.default(*inputs, *rest)


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
    aten.rrelu_with_noise_backward.default: _rrelu_backward,
    aten._log_softmax_backward_data.default: _log_softmax_backward,
    aten.mse_loss_backward.default: _elementwise_loss_backward,
    aten.smooth_l1_loss_backward.default: _elementwise_loss_backward,
    aten.huber_loss_backward.default: _elementwise_loss_backward,
    aten.binary_cross_entropy.default: _binary_cross_entropy,
    aten.binary_cross_entropy_backward.default: _binary_cross_entropy_backward,
    aten.native_layer_norm_backward.default: _layer_norm_backward,
    aten.native_group_norm_backward.default: _group_norm_backward,
    aten.native_batch_norm.default: _native_batch_norm,
    aten.native_batch_norm_backward.default: _native_batch_norm_backward,
    aten.fractional_max_pool2d_backward.default: _like_input,
    aten.fractional_max_pool3d_backward.default: _like_input,
}


def fake_result(target: Any, args: Any, kwargs: Any, mode: FakeTensorMode) -> Any:
    """The result of a node's target for these fake tensors; the caller has entered the mode."""
    function: Callable[..., Any] = _SHAPES.get(target, target)
    env = mode.shape_env
    if not isinstance(env, SizeEnv):
        return function(*args, **kwargs)
    if target in _VIEWS:
        with _exact_sizes():
            return function(*args, **kwargs)
    return env.memo.run(mode, target, function, args, kwargs, is_muted=env.is_muted)


def fake_result_of_numbers(target: Any, args: Any, kwargs: Any, mode: FakeTensorMode) -> Any:
    """`fake_result` in a mode without unknown sizes, and without the python dispatcher."""
    return run_with_numbers(mode, target, _SHAPES.get(target, target), args, kwargs)


@contextmanager
def _exact_sizes() -> Iterator[None]:
    """Let the shape function of a view return the requested sizes: x [N, 8] as [-1, 5, 8] is [N/5, 5, 8].

    torch's other shape function splits and merges dimensions, and returns N // (N // 5) for the 5.
    """
    before = symbolic_config.backed_size_oblivious
    with process_effects.during("torch-config"):
        symbolic_config.backed_size_oblivious = True
        try:
            yield
        finally:
            symbolic_config.backed_size_oblivious = before

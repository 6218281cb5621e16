"""bn_act: a batch norm in training mode fused with an optional addition and an activation, forward and backward.

    y, mean, invstd = bn_act(x, weight, bias, None, eps, 'relu')        y = relu(norm(x))
    y, mean, invstd = bn_act(x, weight, bias, other, eps, 'relu')       y = relu(norm(x) + other)

Each direction takes two passes over memory where ATen's ops take five or six. Without `other` the backward recomputes
the activation's mask from x, so y need not be kept; with `other` it reads y. `more` is a second gradient of y, which
is added in the same pass. Elements are float32 or bfloat16, weights and statistics float32.
kernels/source/batch_norm.cpp has the loops.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from ctypes import c_double, c_int64
from typing import Any

import torch
from torch import Tensor

from argosy.engine.kernels.choices import best
from argosy.engine.kernels.signatures import BN_ACT_BACKWARD, BN_ACT_FORWARD, BN_ACT_RECOMPUTE
from argosy.engine.ops.activation import Activation, numbered
from argosy.engine.ops.memory_format import empty_as, memory_format_of
from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import activation, overwrites

Maybe = Tensor | None
ACTIVATIONS = ("relu", "tanh", "sigmoid", "silu")
"""Supported activations, besides 'none'; after an addition only relu."""
_KNOWN = (*ACTIVATIONS, "none")


def _forward(
    x: Tensor, weight: Maybe, bias: Maybe, other: Maybe, eps: float, act: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the C++ kernel, unless a search has measured ATen's ops to be faster for these sizes.

    Backward has no such choice: ATen's ops would need y, which is not kept.
    """
    if x.ndim < 2 or x.numel() == 0:
        raise ValueError(
            f"a batch norm was given {list(x.shape)}, which has no element or no channels; feed at least one sample, "
            "[N, C, …]"
        )
    arguments = (x, weight, bias, other, eps, act)
    key = ("bn_act", act, other is not None, x.shape, x.dtype, str(memory_format_of(x)))
    return FORWARD[best(key, FORWARD, arguments, lambda *_: "fused")](*arguments)


def _aten(
    x: Tensor, weight: Maybe, bias: Maybe, other: Maybe, eps: float, act: str
) -> tuple[Tensor, Tensor, Tensor]:
    x = x.contiguous(memory_format=memory_format_of(x))
    y, mean, invstd = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, eps)
    if other is not None:
        y.add_(other)
    return (y.relu_() if act == "relu" else Activation.known[act].forward(y, 1.0)), mean, invstd


def _fused(
    x: Tensor, weight: Maybe, bias: Maybe, other: Maybe, eps: float, act: str
) -> tuple[Tensor, Tensor, Tensor]:
    y, mean, invstd = _fake(x)
    x, other = _as(y, x), _as(y, other)
    weight, bias = _vectors(weight, bias)
    numbers = *_sizes(x), c_double(eps), numbered(act, _KNOWN), _is_last(y)
    BN_ACT_FORWARD((x, other, weight, bias, y, mean, invstd), *numbers)
    return y, mean, invstd


def _recompute(
    x: Tensor, weight: Maybe, bias: Maybe, other: Maybe, mean: Tensor, invstd: Tensor, act: str
) -> Tensor:
    """The same y, bit for bit, from the saved statistics: one pass over memory."""
    y = empty_as(x)
    x, other = _as(y, x), _as(y, other)
    weight, bias, mean, invstd = _vectors(weight, bias, mean, invstd)
    numbers = *_sizes(x), numbered(act, _KNOWN), _is_last(y)
    BN_ACT_RECOMPUTE((x, other, weight, bias, y, mean, invstd), *numbers)
    return y


def _backward(dy: Tensor, more: Maybe, x: Tensor, y: Maybe, *rest: Any) -> tuple[Maybe, ...]:
    return _gradients(empty_as(x), dy, more, x, y, *rest)


def _backward_over(dy: Tensor, more: Maybe, x: Tensor, y: Maybe, *rest: Any) -> tuple[Maybe, ...]:
    """The same, in place: dother, or else dx, overwrites dy."""
    if dy.is_contiguous(memory_format=memory_format_of(x)):
        return _gradients(dy, dy, more, x, y, *rest)
    gradients: list[Any] = list(_backward(dy, more, x, y, *rest))
    index = 0 if y is None else 3
    gradients[index] = dy.copy_(gradients[index])
    return tuple(gradients)


def _gradients(
    out: Tensor,
    dy: Tensor,
    more: Maybe,
    x: Tensor,
    y: Maybe,
    weight: Maybe,
    bias: Maybe,
    mean: Tensor,
    invstd: Tensor,
    act: str,
    mask: list[bool],
) -> tuple[Maybe, ...]:
    """dx, dweight, dbias, dother; dother only with y, the others where the mask is True. `out` is dother, or dx."""
    dx, dweight, dbias, dother = _fake_gradients(out, x, y, mean, mask)
    dy, more, x, y = (_as(out, tensor) for tensor in (dy, more, x, y))
    weight, bias, mean, invstd = _vectors(weight, bias, mean, invstd)
    tensors = (dy, more, x, y, weight, bias, mean, invstd, dx, dother, dweight, dbias)
    BN_ACT_BACKWARD(tensors, *_sizes(x), numbered(act, _KNOWN), _is_last(out))
    return dx, dweight, dbias, dother


FORWARD = {"fused": _fused, "aten": _aten}

# --- memory -------------------------------------------------------------------------------------------


def _as(like: Tensor, value: Any) -> Any:
    """The value in the memory format of another tensor; a copy only if they differ."""
    return None if value is None else value.contiguous(memory_format=memory_format_of(like))


def _vectors(*values: Any) -> tuple[Any, ...]:
    """Contiguous per-channel vectors."""
    return tuple(None if value is None else value.contiguous() for value in values)


def _is_last(value: Tensor) -> bool:
    """True if the channels of a row or a pixel are adjacent in memory."""
    return _pixels(value) == 1 or memory_format_of(value) is not torch.contiguous_format


def _pixels(value: Tensor) -> int:
    return math.prod(value.shape[2:])


def _sizes(x: Tensor) -> tuple[c_int64, c_int64, c_int64]:
    """Rows (all but the channels), channels, pixels of an image."""
    pixels = _pixels(x)
    return c_int64(x.shape[0] * pixels), c_int64(x.shape[1]), c_int64(pixels)


# --- fake results -------------------------------------------------------------------------------------


def _fake(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    mean, invstd = (x.new_empty(x.shape[1], dtype=torch.float32) for _ in range(2))
    return empty_as(x), mean, invstd


def _fake_gradients(out: Tensor, x: Tensor, y: Maybe, mean: Tensor, mask: list[bool]) -> tuple[Maybe, ...]:
    dx = None if not mask[0] else out if y is None else empty_as(x)
    dweight, dbias = (torch.empty_like(mean) if wanted else None for wanted in mask[1:])
    return dx, dweight, dbias, None if y is None else out


def _fake_backward(dy: Tensor, more: Maybe, x: Tensor, y: Maybe, *rest: Any) -> tuple[Maybe, ...]:
    return _fake_gradients(empty_as(x), x, y, rest[2], rest[-1])


def _fake_backward_over(dy: Tensor, more: Maybe, x: Tensor, y: Maybe, *rest: Any) -> tuple[Maybe, ...]:
    return _fake_gradients(dy, x, y, rest[2], rest[-1])


_GRADIENTS = (
    "Tensor? more, Tensor x, Tensor? y, Tensor? weight, Tensor? bias, Tensor mean, Tensor invstd, str act, "
    "bool[3] output_mask) -> (Tensor, Tensor, Tensor, Tensor)"
)
bn_act = declare(
    "bn_act(Tensor x, Tensor? weight, Tensor? bias, Tensor? other, float eps, str act) "
    "-> (Tensor, Tensor, Tensor)",
    _forward,
    _fake,
)
bn_act_recompute = declare(
    "bn_act_recompute(Tensor x, Tensor? weight, Tensor? bias, Tensor? other, Tensor mean, Tensor invstd, str act) "
    "-> Tensor",
    _recompute,
    lambda x, *rest: empty_as(x),
)
bn_act_backward = declare(f"bn_act_backward(Tensor dy, {_GRADIENTS}", _backward, _fake_backward)
bn_act_backward_ = declare(
    f"bn_act_backward_(Tensor(a!) dy, {_GRADIENTS}", _backward_over, _fake_backward_over
)
_verify_backward = activation(_KNOWN, "x", "dy", "more", "y")
SPECS = (
    OpSpec(bn_act, _forward, verify=activation(_KNOWN, "x", "other")),
    OpSpec(bn_act_recompute, _recompute, verify=activation(_KNOWN, "x", "other")),
    OpSpec(bn_act_backward, _backward, verify=_verify_backward),
    OpSpec(bn_act_backward_, _backward_over, verify=overwrites("dy", _verify_backward)),
)

"""bn_act: a batch norm in training, what is added to it, and its activation, as one kernel each way.

    y, mean, invstd = bn_act(x, weight, bias, None, eps, 'relu')        y = relu(norm(x))
    y, mean, invstd = bn_act(x, weight, bias, other, eps, 'relu')       y = relu(norm(x) + other)

Each way takes two passes over memory where ATen's ops take five or six. Without `other` the backward finds the mask
again from x, so that nobody keeps y for it; with it, it reads y. A second gradient of y is added on the way.
kernels/source/batch_norm.cpp has the loops.
"""

# SPDX-License-Identifier: Apache-2.0
from ctypes import c_double, c_int64
from typing import Any

import torch
from torch import Tensor

from argosy.engine.kernels import library, pointer
from argosy.engine.kernels.choices import best
from argosy.engine.ops.activation import Activation
from argosy.engine.ops.order import empty_as, order_of
from argosy.engine.ops.spec import OpSpec, declare

Maybe = Tensor | None
ACTIVATIONS = ("relu", "tanh", "sigmoid", "silu")
"""What bn_act may end with, or 'none'; behind an addition only relu."""


def _forward(
    x: Tensor, weight: Maybe, bias: Maybe, other: Maybe, eps: float, act: str
) -> tuple[Tensor, Tensor, Tensor]:
    """By our kernel, unless a search has found ATen's ops faster for these sizes.

    Backward has no such choice: it does not have y, which ATen's ops would have to be given.
    """
    if x.numel() == 0:
        raise ValueError(
            f"a batch norm was given {list(x.shape)}, which has no element; feed at least one sample"
        )
    arguments = (x, weight, bias, other, eps, act)
    key = ("bn_act", act, other is not None, x.shape, x.dtype, str(order_of(x)))
    return FORWARD[best(key, FORWARD, arguments, lambda *_: "fused")](*arguments)


def _aten(
    x: Tensor, weight: Maybe, bias: Maybe, other: Maybe, eps: float, act: str
) -> tuple[Tensor, Tensor, Tensor]:
    x = x.contiguous(memory_format=order_of(x))
    y, mean, invstd = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, eps)
    if other is not None:
        y.add_(other)
    return (y.relu_() if act == "relu" else Activation.known[act].forward(y, 1.0)), mean, invstd


def _fused(
    x: Tensor, weight: Maybe, bias: Maybe, other: Maybe, eps: float, act: str
) -> tuple[Tensor, Tensor, Tensor]:
    y, mean, invstd = _fake(x)
    x, other = _as(y, x), _as(y, other)
    weight, bias = _vectors(x, weight, bias)
    library().argosy_bn_act_forward(
        *map(pointer, (x, other, weight, bias, y, mean, invstd)),
        *_sizes(x),
        c_double(eps),
        Activation.known[act].number,
        _is_last(y),
    )
    return y, mean, invstd


def _again(
    x: Tensor, weight: Maybe, bias: Maybe, other: Maybe, mean: Tensor, invstd: Tensor, act: str
) -> Tensor:
    """The same y once more, bit for bit, from the statistics that were found: one pass over memory."""
    y = empty_as(x)
    x, other = _as(y, x), _as(y, other)
    weight, bias, mean, invstd = _vectors(x, weight, bias, mean, invstd)
    library().argosy_bn_act_again(
        *map(pointer, (x, other, weight, bias, y, mean, invstd)),
        *_sizes(x),
        Activation.known[act].number,
        _is_last(y),
    )
    return y


def _backward(dy: Tensor, more: Maybe, x: Tensor, y: Maybe, *rest: Any) -> tuple[Maybe, ...]:
    return _gradients(empty_as(x), dy, more, x, y, *rest)


def _backward_over(dy: Tensor, more: Maybe, x: Tensor, y: Maybe, *rest: Any) -> tuple[Maybe, ...]:
    """The same; dother, or else dx, is written over dy."""
    if dy.is_contiguous(memory_format=order_of(x)):
        return _gradients(dy, dy, more, x, y, *rest)
    found: list[Any] = list(_backward(dy, more, x, y, *rest))
    place = 0 if y is None else 3
    found[place] = dy.copy_(found[place])
    return tuple(found)


def _gradients(
    over: Tensor,
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
    """dx, dweight, dbias, dother; dother if there is y, the others if the mask wants them."""
    dx, dweight, dbias, dother = _fake_gradients(over, x, y, mean, mask)
    dy, more, x, y = (_as(over, one) for one in (dy, more, x, y))
    weight, bias, mean, invstd = _vectors(x, weight, bias, mean, invstd)
    library().argosy_bn_act_backward(
        *map(pointer, (dy, more, x, y, weight, bias, mean, invstd, dx, dother, dweight, dbias)),
        *_sizes(x),
        Activation.known[act].number,
        _is_last(over),
    )
    return dx, dweight, dbias, dother


FORWARD = {"fused": _fused, "aten": _aten}

# --- memory -------------------------------------------------------------------------------------------


def _as(order: Tensor, value: Any) -> Any:
    """The value in the order in memory of another tensor; itself, if it is so already."""
    return None if value is None else value.contiguous(memory_format=order_of(order))


def _vectors(x: Tensor, *values: Any) -> tuple[Any, ...]:
    """One number for each channel, one behind the other: the kernels read so many."""
    for value in values:
        if value is not None and value.shape != x.shape[1:2]:
            raise ValueError(
                f"a batch norm of {list(x.shape)} was given weights or statistics of {list(value.shape)}; "
                f"they must be [{x.shape[1]}]"
            )
    return tuple(None if value is None else value.contiguous() for value in values)


def _is_last(value: Tensor) -> bool:
    """True if the channels of a row or a pixel lie next to each other."""
    return _pixels(value) == 1 or order_of(value) is not torch.contiguous_format


def _pixels(value: Tensor) -> int:
    return value[0, 0].numel()


def _sizes(x: Tensor) -> tuple[c_int64, c_int64, c_int64]:
    """Rows (all but the channels), channels, pixels of an image."""
    pixels = _pixels(x)
    return c_int64(x.shape[0] * pixels), c_int64(x.shape[1]), c_int64(pixels)


# --- what comes out -----------------------------------------------------------------------------------


def _fake(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return empty_as(x), x.new_empty(x.shape[1]), x.new_empty(x.shape[1])


def _fake_gradients(over: Tensor, x: Tensor, y: Maybe, mean: Tensor, mask: list[bool]) -> tuple[Maybe, ...]:
    dx = None if not mask[0] else over if y is None else empty_as(x)
    dweight, dbias = (torch.empty_like(mean) if wanted else None for wanted in mask[1:])
    return dx, dweight, dbias, None if y is None else over


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
bn_act_again = declare(
    "bn_act_again(Tensor x, Tensor? weight, Tensor? bias, Tensor? other, Tensor mean, Tensor invstd, str act) "
    "-> Tensor",
    _again,
    lambda x, *rest: empty_as(x),
)
bn_act_backward = declare(f"bn_act_backward(Tensor dy, {_GRADIENTS}", _backward, _fake_backward)
bn_act_backward_ = declare(
    f"bn_act_backward_(Tensor(a!) dy, {_GRADIENTS}", _backward_over, _fake_backward_over
)
SPECS = (
    OpSpec(bn_act, _forward, "fused_batch_norm_act"),
    OpSpec(bn_act_again, _again, "fused_batch_norm_act"),
    OpSpec(bn_act_backward, _backward, "fused_batch_norm_act_grad"),
    OpSpec(bn_act_backward_, _backward_over, "fused_batch_norm_act_grad"),
)

"""add_act: an addition and its activation in one pass over memory, and back.

    y    = add_act(a, b, 'relu', 1.0)            act(a + b); b may lack leading dimensions of a, as a bias does
    y, s = add_act_keep(a, b, 'gelu', 1.0)       a + b too, for activations whose backward reads what went in
    y    = act_add(a, b, 'relu', 1.0)            a + act(b)
    dx   = act_backward(dy, more, ref, 'relu', 1.0)      act'(ref) · (dy + more); ref is y, or s

The last number is the factor of the activation 'scale'. kernels/source/add_act.cpp has the loops.
"""

# SPDX-License-Identifier: Apache-2.0
from ctypes import c_float, c_int64
from typing import Any

import torch
from torch import Tensor

from argosy.engine.kernels import library, pointer
from argosy.engine.ops.activation import Activation
from argosy.engine.ops.spec import OpSpec, declare


def _add_act(a: Tensor, b: Tensor, act: str, scale: float) -> Tensor:
    return _added(torch.empty_like(a), None, a, b, act, scale)


def _add_act_over(a: Tensor, b: Tensor, act: str, scale: float) -> Tensor:
    """The same, written over a."""
    return _added(a, None, a, b, act, scale)


def _add_act_keep(a: Tensor, b: Tensor, act: str, scale: float) -> tuple[Tensor, Tensor]:
    y, s = torch.empty_like(a), torch.empty_like(a)
    return _added(y, s, a, b, act, scale), s


def _act_add(a: Tensor, b: Tensor, act: str, scale: float) -> Tensor:
    return _added(torch.empty_like(a), None, a, b, act, scale, first=True)


def _added(
    y: Tensor, s: Tensor | None, a: Tensor, b: Tensor, act: str, scale: float, first: bool = False
) -> Tensor:
    if y.numel():
        is_repeated = b.shape != y.shape and y.is_contiguous()
        a, b = _as(y, a), b.contiguous() if is_repeated else _as(y, b.expand(y.shape))
        library().argosy_add_act(
            *map(pointer, (a, b, y, s)),
            c_int64(y.numel()),
            c_int64(b.numel()),
            c_float(scale),
            Activation.known[act].number,
            first,
        )
    return y


def _backward(dy: Tensor, more: Tensor | None, ref: Tensor, act: str, scale: float) -> Tensor:
    return _gradient(torch.empty_like(ref), dy, more, ref, act, scale)


def _backward_over(dy: Tensor, more: Tensor | None, ref: Tensor, act: str, scale: float) -> Tensor:
    """The same, written over dy, which lies in memory as ref does."""
    return _gradient(dy, dy, more, ref, act, scale)


def _gradient(dx: Tensor, dy: Tensor, more: Tensor | None, ref: Tensor, act: str, scale: float) -> Tensor:
    if dx.numel():
        dy, more, ref = _as(dx, dy), _as(dx, more), _as(dx, ref)
        library().argosy_act_backward(
            *map(pointer, (dy, more, ref, dx)),
            c_int64(dx.numel()),
            c_float(scale),
            Activation.known[act].number,
        )
    return dx


def _as(order: Tensor, value: Any) -> Any:
    """The value in the order in memory of another tensor of its shape; itself, if it is so already."""
    if value is None or value.stride() == order.stride():
        return value
    return torch.empty_like(order).copy_(value)


def _fake(a: Tensor, b: Tensor, act: str, scale: float) -> Tensor:
    return torch.empty_like(a)


_ADD = "Tensor b, str act, float scale)"
_BACK = "Tensor? more, Tensor ref, str act, float scale)"
add_act = declare(f"add_act(Tensor a, {_ADD} -> Tensor", _add_act, _fake)
add_act_ = declare(f"add_act_(Tensor(a!) a, {_ADD} -> Tensor(a!)", _add_act_over, lambda a, *rest: a)
add_act_keep = declare(
    f"add_act_keep(Tensor a, {_ADD} -> (Tensor, Tensor)",
    _add_act_keep,
    lambda a, *rest: (torch.empty_like(a), torch.empty_like(a)),
)
act_add = declare(f"act_add(Tensor a, {_ADD} -> Tensor", _act_add, _fake)
act_backward = declare(
    f"act_backward(Tensor dy, {_BACK} -> Tensor",
    _backward,
    lambda dy, more, ref, *rest: torch.empty_like(ref),
)
act_backward_ = declare(
    f"act_backward_(Tensor(a!) dy, {_BACK} -> Tensor(a!)", _backward_over, lambda dy, *rest: dy
)
SPECS = (
    OpSpec(add_act, _add_act, "fused_elemwise_add_activation"),
    OpSpec(add_act_, _add_act_over, "fused_elemwise_add_activation"),
    OpSpec(add_act_keep, _add_act_keep, "fused_elemwise_add_activation"),
    OpSpec(act_add, _act_add, "fused_elemwise_add_activation"),
    OpSpec(act_backward, _backward, "fused_elemwise_add_activation_grad"),
    OpSpec(act_backward_, _backward_over, "fused_elemwise_add_activation_grad"),
)

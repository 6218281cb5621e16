"""add_act: an addition fused with an activation, and their backward.

    y    = add_act(a, b, 'relu', 1.0)            act(a + b); b may lack leading dimensions of a, as a bias does
    y, s = add_act_keep(a, b, 'gelu', 1.0)       also a + b, for activations whose backward reads the input
    y    = act_add(a, b, 'relu', 1.0)            a + act(b)
    dx   = act_backward(dy, more, ref, 'relu', 1.0)      act'(ref) · (dy + more); ref is y, or s

The last number is the factor of the activation 'scale'. kernels/source/add_act.cpp has the loops.
"""

# SPDX-License-Identifier: Apache-2.0
from ctypes import c_float, c_int64
from typing import Any

import torch
from torch import Tensor

from argosy.engine.kernels.signatures import ACT_BACKWARD, ADD_ACT
from argosy.engine.ops.activation import Activation, numbered
from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import activation, addition, overwrites

_ACTIVATIONS = tuple(name for name in Activation.known if name != "none")


def _add_act(a: Tensor, b: Tensor, act: str, scale: float) -> Tensor:
    return _added(torch.empty_like(a), None, a, b, act, scale)


def _add_act_over(a: Tensor, b: Tensor, act: str, scale: float) -> Tensor:
    """The same, in place in a."""
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
        broadcasts = b.shape != y.shape and y.is_contiguous()
        a, b = _as(y, a), b.contiguous() if broadcasts else _as(y, b.expand(y.shape))
        numbers = c_int64(y.numel()), c_int64(b.numel()), c_float(scale), numbered(act, _ACTIVATIONS), first
        ADD_ACT((a, b, y, s), *numbers)
    return y


def _backward(dy: Tensor, more: Tensor | None, ref: Tensor, act: str, scale: float) -> Tensor:
    return _gradient(torch.empty_like(ref), dy, more, ref, act, scale)


def _backward_over(dy: Tensor, more: Tensor | None, ref: Tensor, act: str, scale: float) -> Tensor:
    """The same, in place in dy, which has the strides of ref."""
    return _gradient(dy, dy, more, ref, act, scale)


def _gradient(dx: Tensor, dy: Tensor, more: Tensor | None, ref: Tensor, act: str, scale: float) -> Tensor:
    if dx.numel():
        dy, more, ref = _as(dx, dy), _as(dx, more), _as(dx, ref)
        numbers = c_int64(dx.numel()), c_float(scale), numbered(act, _ACTIVATIONS)
        ACT_BACKWARD((dy, more, ref, dx), *numbers)
    return dx


def _as(like: Tensor, value: Any) -> Any:
    """The value with the strides of another tensor of its shape; a copy only if they differ.

    A value of another shape is returned as it is: the kernel rejects it.
    """
    if value is None or value.stride() == like.stride() or value.shape != like.shape:
        return value
    return torch.empty_like(like).copy_(value)


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
_verify_add = addition(_ACTIVATIONS)
_verify_backward = activation(_ACTIVATIONS, "dy", "more", "ref")
SPECS = (
    OpSpec(add_act, _add_act, verify=_verify_add),
    OpSpec(add_act_, _add_act_over, verify=overwrites("a", _verify_add)),
    OpSpec(add_act_keep, _add_act_keep, verify=_verify_add),
    OpSpec(act_add, _act_add, verify=_verify_add),
    OpSpec(act_backward, _backward, verify=_verify_backward),
    OpSpec(act_backward_, _backward_over, verify=overwrites("dy", _verify_backward)),
)

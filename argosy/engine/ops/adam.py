"""adam and adamw: steps by the mean and the mean square of the gradients so far, in one pass over memory.

    m1 = b1 · m1 + (1 - b1) · g                step t counts from 1
    m2 = b2 · m2 + (1 - b2) · g²
    p -= lr · (m1 / (1 - b1^t)) / (sqrt(m2 / (1 - b2^t)) + eps)

adamw first shrinks the parameter: p *= 1 - lr · decay. `master` is a float32 copy of a 16-bit parameter: the master is
updated, and the parameter is set to its rounded value.
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.ops.match_layout import match_layout
from argosy.engine.ops.op_spec import OpSpec, declare


def adamw_lists(
    params: list[Tensor],
    grads: list[Tensor],
    moments1: list[Tensor],
    moments2: list[Tensor],
    steps: list[Tensor],
    *,
    lr: float,
    weight_decay: float,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> None:
    """torch's kernel for lists of tensors, those of a parameter in the same layout; increments the steps."""
    for step in steps:
        step.add_(1.0)
    torch._fused_adamw_(
        params,
        grads,
        moments1,
        moments2,
        [],
        steps,
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        weight_decay=weight_decay,
        eps=epsilon,
        amsgrad=False,
        maximize=False,
    )


def _adamw(
    param: Tensor,
    grad: Tensor,
    moment1: Tensor,
    moment2: Tensor,
    step: Tensor,
    rate: Tensor,
    factor: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    master: Tensor | None = None,
) -> None:
    lr = rate.item() * factor

    def update(*tensors: Tensor) -> None:
        lists = ([t] for t in (*tensors, step))
        adamw_lists(*lists, lr=lr, weight_decay=weight_decay, beta1=beta1, beta2=beta2, epsilon=epsilon)

    if master is None:
        match_layout(update, param, grad, moment1, moment2)
    else:
        match_layout(update, master, grad.to(master.dtype), moment1, moment2)
        param.copy_(master)


def _adam(
    param: Tensor,
    grad: Tensor,
    moment1: Tensor,
    moment2: Tensor,
    step: Tensor,
    rate: Tensor,
    factor: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    master: Tensor | None = None,
) -> None:
    _adamw(param, grad, moment1, moment2, step, rate, factor, beta1, beta2, epsilon, 0.0, master)


_ARGUMENTS = (
    "Tensor(a!) param, Tensor grad, Tensor(b!) moment1, Tensor(c!) moment2, Tensor(d!) step, Tensor rate, "
    "float factor, float beta1, float beta2, float epsilon"
)
_MASTER = "Tensor(m!)? master=None"

adam = declare(f"adam({_ARGUMENTS}, {_MASTER}) -> ()", _adam, lambda *args: None)
adamw = declare(f"adamw({_ARGUMENTS}, float weight_decay, {_MASTER}) -> ()", _adamw, lambda *args: None)
SPECS = (OpSpec(adam, _adam), OpSpec(adamw, _adamw))

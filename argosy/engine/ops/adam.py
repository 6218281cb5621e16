"""adam and adamw: steps by the mean and the mean square of the gradients so far, in one pass over memory.

    m1 = b1 · m1 + (1 - b1) · g                step t counts from 1
    m2 = b2 · m2 + (1 - b2) · g²
    p -= lr · (m1 / (1 - b1^t)) / (sqrt(m2 / (1 - b2^t)) + eps)

adamw first shrinks the parameter: p *= 1 - lr · decay.
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.ops.in_one_order import in_one_order
from argosy.engine.ops.spec import OpSpec, declare


def _adamw(  # the list of the schema
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
) -> None:
    lr = rate.item() * factor
    step.add_(1.0)

    def update(param: Tensor, grad: Tensor, moment1: Tensor, moment2: Tensor) -> None:
        torch._fused_adamw_(
            [param],
            [grad],
            [moment1],
            [moment2],
            [],
            [step],
            lr=lr,
            beta1=beta1,
            beta2=beta2,
            weight_decay=weight_decay,
            eps=epsilon,
            amsgrad=False,
            maximize=False,
        )

    in_one_order(update, param, grad, moment1, moment2)


def _adam(  # the list of the schema
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
) -> None:
    _adamw(param, grad, moment1, moment2, step, rate, factor, beta1, beta2, epsilon, 0.0)


_ARGUMENTS = (
    "Tensor(a!) param, Tensor grad, Tensor(b!) moment1, Tensor(c!) moment2, Tensor(d!) step, Tensor rate, "
    "float factor, float beta1, float beta2, float epsilon"
)

adam = declare(f"adam({_ARGUMENTS}) -> ()", _adam, lambda *args: None)
adamw = declare(f"adamw({_ARGUMENTS}, float weight_decay) -> ()", _adamw, lambda *args: None)
SPECS = (OpSpec(adam, _adam, "adam"), OpSpec(adamw, _adamw, "adamw"))

"""adam and adamw: steps by the mean and the mean square of the gradients so far, in one pass over memory.

    m1 = b1 · m1 + (1 - b1) · g                step t counts from 1
    m2 = b2 · m2 + (1 - b2) · g²
    p -= lr · (m1 / (1 - b1^t)) / (sqrt(m2 / (1 - b2^t)) + eps)

adamw first shrinks the parameter: p *= 1 - lr · decay.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import torch
from torch import Tensor

from argosy.engine.kernels.updates import UpdateKernel
from argosy.engine.optimizers.spec import OptimizerSetting, OptimizerSpec, Slot

BETAS = OptimizerSetting("beta1", 0.9, least=0, below=1), OptimizerSetting("beta2", 0.999, least=0, below=1)
MOMENTS = Slot("moment1", "Moment1"), Slot("moment2", "Moment2")
STEP = Slot("step", "Count", is_count=True)


def update(
    params: list[Tensor],
    grads: list[Tensor],
    moments1: list[Tensor],
    moments2: list[Tensor],
    steps: list[Tensor],
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float = 0.0,
) -> None:
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


def update_rows(
    p: Tensor,
    g: Tensor,
    mean: Tensor,
    square: Tensor,
    step: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float = 0.0,
) -> None:
    """Each row has its own step count."""
    if weight_decay:
        p.mul_(1 - lr * weight_decay)
    mean.lerp_(g, 1 - beta1)
    square.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    root = square.sqrt().div_(unbiased(beta2, step).sqrt().float()).add_(epsilon)
    p.sub_(mean.mul(unbiased(beta1, step).reciprocal().mul(lr).float()).div_(root))


def unbiased(beta: float, step: Tensor) -> Tensor:
    """1 - beta^t for the step count of each row, float64 [n, 1]."""
    return 1 - torch.pow(beta, step.double())


ADAM = OptimizerSpec(
    "adam",
    update,
    settings=(*BETAS, OptimizerSetting("epsilon", 1e-8, least=0)),
    slots=(*MOMENTS, STEP),
    takes_lists=True,
    update_rows=update_rows,
    is_fused=True,
    native=UpdateKernel("argosy_fused_adamw", "param grad moment1 moment2", steps=1),
)
ADAMW = replace(
    ADAM,
    name="adamw",
    settings=(*ADAM.settings, OptimizerSetting("weight_decay", 0.01, least=0, row_name="coeff")),
)

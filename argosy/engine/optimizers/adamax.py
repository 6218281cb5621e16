"""adamax: Adam with the largest gradient so far in place of the mean square.

    m = b1 · m + (1 - b1) · g                   step t counts from 1
    n = max(|g|, b2 · n + eps)
    p -= lr / (1 - b1^t) · m / n

Epsilon is added to the old norm, as in Paddle (torch adds it to |g|).
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.optimizers.adam import BETAS, STEP, unbiased
from argosy.engine.optimizers.spec import OptimizerSetting, OptimizerSpec, Slot


def update(
    param: Tensor,
    grad: Tensor,
    moment: Tensor,
    inf_norm: Tensor,
    step: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> None:
    _advance(grad, moment, inf_norm, beta1, beta2, epsilon)
    param.addcdiv_(moment, inf_norm, value=-lr / (1 - beta1 ** step.item()))


def update_rows(
    p: Tensor,
    g: Tensor,
    moment: Tensor,
    inf_norm: Tensor,
    step: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> None:
    """Each row has its own step count."""
    _advance(g, moment, inf_norm, beta1, beta2, epsilon)
    p.sub_(moment.mul(unbiased(beta1, step).reciprocal().mul(lr).float()).div_(inf_norm))


def _advance(
    grad: Tensor, moment: Tensor, inf_norm: Tensor, beta1: float, beta2: float, epsilon: float
) -> None:
    moment.lerp_(grad, 1 - beta1)
    torch.maximum(inf_norm.mul_(beta2).add_(epsilon), grad.abs(), out=inf_norm)


SPEC = OptimizerSpec(
    "adamax",
    update,
    settings=(*BETAS, OptimizerSetting("epsilon", 1e-8, least=0)),
    slots=(Slot("moment", "Moment"), Slot("inf_norm", "InfNorm"), STEP),
    update_rows=update_rows,
)

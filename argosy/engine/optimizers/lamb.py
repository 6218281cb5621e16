"""lamb: Adam's direction, with a step as long as the parameter's norm says (You et al. 2020, algorithm 2).

m1 = b1 · m1 + (1 - b1) · g                 step t counts from 1
m2 = b2 · m2 + (1 - b2) · g²
u  = (m1 / (1 - b1^t)) / (sqrt(m2 / (1 - b2^t)) + eps) + decay · p
p -= lr · |p| / |u| · u                     the ratio is 1 where a norm is zero
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.optimizers.adam import BETAS, MOMENTS, STEP
from argosy.engine.optimizers.spec import OptimizerSpec, Setting


def update(
    param: Tensor,
    grad: Tensor,
    moment1: Tensor,
    moment2: Tensor,
    step: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
) -> None:
    t = step.item()
    moment1.lerp_(grad, 1 - beta1)
    moment2.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    direction = moment2.div(1 - beta2**t).sqrt_().add_(epsilon)
    torch.div(moment1, direction, out=direction).div_(1 - beta1**t).add_(param, alpha=weight_decay)
    size, length = torch.linalg.vector_norm(param).item(), torch.linalg.vector_norm(direction).item()
    trust = size / length if size > 0 and length > 0 else 1.0
    param.add_(direction, alpha=-lr * trust)


SPEC = OptimizerSpec(
    "lamb",
    update,
    settings=(
        *BETAS,
        Setting("epsilon", 1e-6, least=0),
        Setting("lamb_weight_decay", 0.01, least=0, op_name="weight_decay"),
    ),
    slots=(*MOMENTS, STEP),
    is_elementwise=False,
)

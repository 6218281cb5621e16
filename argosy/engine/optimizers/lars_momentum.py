"""lars_momentum: momentum with a rate for each parameter from its norm (You et al. 2017).

local = lr · coeff · |p| / (|g| + decay · |p| + eps)        plain lr where decay or a norm is zero
v = mu · v + local · (g + decay · p)
p -= v
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.optimizers.spec import OptimizerSpec, Setting, Slot


def update(
    param: Tensor,
    grad: Tensor,
    velocity: Tensor,
    lr: float,
    mu: float,
    coeff: float,
    weight_decay: float,
    epsilon: float,
) -> None:
    if weight_decay > 0:
        size, slope = torch.linalg.vector_norm(param).item(), torch.linalg.vector_norm(grad).item()
        if size > 0 and slope > 0:
            lr *= coeff * size / (slope + weight_decay * size + epsilon)
    velocity.mul_(mu).add_(grad, alpha=lr).add_(param, alpha=lr * weight_decay)
    param.sub_(velocity)


SPEC = OptimizerSpec(
    "lars_momentum",
    update,
    settings=(
        Setting("momentum", 0.9, least=0, op_name="mu"),
        Setting("lars_coeff", 0.001, least=0, op_name="coeff"),
        Setting("lars_weight_decay", 0.0005, least=0, op_name="weight_decay"),
        Setting("epsilon", 0.0, least=0),
    ),
    slots=(Slot("velocity", "Velocity"),),
    is_elementwise=False,
)

"""rmsprop: steps by the gradient over the root of its mean square.

    ms = rho · ms + (1 - rho) · g²
    mg = rho · mg + (1 - rho) · g               only if centered, else mg = 0
    v  = mu · v + lr · g / sqrt(ms - mg² + eps)
    p -= v

Epsilon stands inside the root, as in Paddle (torch adds it outside). ms - mg² is a variance, which
rounding may push below zero; it is held at zero, where Paddle would take the root of a negative number.
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.optimizers.spec import OptimizerSetting, OptimizerSpec, Slot


def update(
    param: Tensor,
    grad: Tensor,
    mean_square: Tensor,
    mean_grad: Tensor | None,
    momentum: Tensor | None,
    lr: float,
    rho: float,
    epsilon: float,
    mu: float,
) -> None:
    """`mean_grad` is given if centered; `momentum` is None if mu is 0."""
    mean_square.mul_(rho).addcmul_(grad, grad, value=1 - rho)
    if mean_grad is None:
        root = mean_square.add(epsilon).sqrt_()
    else:
        mean_grad.lerp_(grad, 1 - rho)
        variance = torch.addcmul(mean_square, mean_grad, mean_grad, value=-1.0)
        root = variance.clamp_(min=0.0).add_(epsilon).sqrt_()
    if momentum is None:
        param.addcdiv_(grad, root, value=-lr)
    else:
        param.sub_(momentum.mul_(mu).addcdiv_(grad, root, value=lr))


SPEC = OptimizerSpec(
    "rmsprop",
    update,
    settings=(
        OptimizerSetting("rho", 0.95, least=0, below=1),
        OptimizerSetting("epsilon", 1e-6, least=0),
        OptimizerSetting("momentum", 0.0, least=0, op_name="mu"),
        OptimizerSetting("centered", False, in_op=False),
    ),
    slots=(
        Slot("mean_square", "MeanSquare"),
        Slot("mean_grad", "MeanGrad", used_if="centered"),
        Slot("momentum", "Moment", used_if="momentum"),
    ),
)

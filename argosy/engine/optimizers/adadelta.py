"""adadelta: steps by the gradient, scaled with the ratio of two running means of squares (Zeiler 2012).

sg = rho · sg + (1 - rho) · g²
u  = sqrt((su + eps) / (sg + eps)) · g
su = rho · su + (1 - rho) · u²
p -= lr · u
"""

# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from argosy.engine.optimizers.spec import OptimizerSetting, OptimizerSpec, Slot


def update(
    param: Tensor,
    grad: Tensor,
    squared_grad: Tensor,
    squared_update: Tensor,
    lr: float,
    rho: float,
    epsilon: float,
) -> None:
    squared_grad.mul_(rho).addcmul_(grad, grad, value=1 - rho)
    change = squared_update.add(epsilon).div_(squared_grad.add(epsilon)).sqrt_().mul_(grad)
    squared_update.mul_(rho).addcmul_(change, change, value=1 - rho)
    param.sub_(change, alpha=lr)


SPEC = OptimizerSpec(
    "adadelta",
    update,
    settings=(OptimizerSetting("rho", 0.95, least=0, below=1), OptimizerSetting("epsilon", 1e-6, least=0)),
    slots=(  # Paddle's names have two underscores: w__avg_squared_grad_0
        Slot("_avg_squared_grad", "AvgSquaredGrad", op_name="squared_grad"),
        Slot("_avg_squared_update", "AvgSquaredUpdate", op_name="squared_update"),
    ),
)

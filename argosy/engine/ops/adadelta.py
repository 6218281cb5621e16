"""adadelta: steps by the gradient, scaled with the ratio of two running means of squares (Zeiler 2012).

sg = rho · sg + (1 - rho) · g²
u  = sqrt((su + eps) / (sg + eps)) · g
su = rho · su + (1 - rho) · u²
p -= lr · u
"""

# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from argosy.engine.ops.op_spec import OpSpec, declare


def _kernel(
    param: Tensor,
    grad: Tensor,
    squared_grad: Tensor,
    squared_update: Tensor,
    rate: Tensor,
    factor: float,
    rho: float,
    epsilon: float,
) -> None:
    lr = rate.item() * factor
    squared_grad.mul_(rho).addcmul_(grad, grad, value=1 - rho)
    update = squared_update.add(epsilon).div_(squared_grad.add(epsilon)).sqrt_().mul_(grad)
    squared_update.mul_(rho).addcmul_(update, update, value=1 - rho)
    param.sub_(update, alpha=lr)


adadelta = declare(
    "adadelta(Tensor(a!) param, Tensor grad, Tensor(b!) squared_grad, Tensor(c!) squared_update, "
    "Tensor rate, float factor, float rho, float epsilon) -> ()",
    _kernel,
    lambda *args: None,
)
SPEC = OpSpec(adadelta, _kernel)

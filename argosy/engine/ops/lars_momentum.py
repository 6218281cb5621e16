"""lars_momentum: momentum with a rate for each parameter from its norm (You et al. 2017).

local = lr · coeff · |p| / (|g| + decay · |p| + eps)        plain lr where decay or a norm is zero
v = mu · v + local · (g + decay · p)
p -= v
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.ops.op_spec import OpSpec, declare


def _kernel(
    param: Tensor,
    grad: Tensor,
    velocity: Tensor,
    rate: Tensor,
    factor: float,
    mu: float,
    coeff: float,
    weight_decay: float,
    epsilon: float,
) -> None:
    local = rate.item() * factor
    if weight_decay > 0:
        size, slope = torch.linalg.vector_norm(param).item(), torch.linalg.vector_norm(grad).item()
        if size > 0 and slope > 0:
            local *= coeff * size / (slope + weight_decay * size + epsilon)
    velocity.mul_(mu).add_(grad, alpha=local).add_(param, alpha=local * weight_decay)
    param.sub_(velocity)


lars_momentum = declare(
    "lars_momentum(Tensor(a!) param, Tensor grad, Tensor(b!) velocity, Tensor rate, float factor, float mu, "
    "float coeff, float weight_decay, float epsilon) -> ()",
    _kernel,
    lambda *args: None,
)
SPEC = OpSpec(lars_momentum, _kernel)

"""lamb: Adam's direction, with a step as long as the parameter's norm says (You et al. 2020, algorithm 2).

m1 = b1 · m1 + (1 - b1) · g                 step t counts from 1
m2 = b2 · m2 + (1 - b2) · g²
u  = (m1 / (1 - b1^t)) / (sqrt(m2 / (1 - b2^t)) + eps) + decay · p
p -= lr · |p| / |u| · u                     the ratio is 1 where a norm is zero
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.ops.op_spec import OpSpec, declare


def _kernel(
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
    t = step.add_(1.0).item()
    moment1.lerp_(grad, 1 - beta1)
    moment2.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    direction = moment2.div(1 - beta2**t).sqrt_().add_(epsilon)
    torch.div(moment1, direction, out=direction).div_(1 - beta1**t).add_(param, alpha=weight_decay)
    size, length = torch.linalg.vector_norm(param).item(), torch.linalg.vector_norm(direction).item()
    trust = size / length if size > 0 and length > 0 else 1.0
    param.add_(direction, alpha=-lr * trust)


lamb = declare(
    "lamb(Tensor(a!) param, Tensor grad, Tensor(b!) moment1, Tensor(c!) moment2, Tensor(d!) step, "
    "Tensor rate, float factor, float beta1, float beta2, float epsilon, float weight_decay) -> ()",
    _kernel,
    lambda *args: None,
)
SPEC = OpSpec(lamb, _kernel)

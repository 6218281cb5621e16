"""adamax: Adam with the largest gradient so far in place of the mean square.

    m = b1 · m + (1 - b1) · g                   step t counts from 1
    n = max(|g|, b2 · n + eps)
    p -= lr / (1 - b1^t) · m / n

Epsilon is added to the old norm, as in Paddle (torch adds it to |g|).
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.ops.op_spec import OpSpec, declare


def _kernel(
    param: Tensor,
    grad: Tensor,
    moment: Tensor,
    inf_norm: Tensor,
    step: Tensor,
    rate: Tensor,
    factor: float,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> None:
    lr = rate.item() * factor
    t = step.add_(1.0).item()
    moment.lerp_(grad, 1 - beta1)
    torch.maximum(inf_norm.mul_(beta2).add_(epsilon), grad.abs(), out=inf_norm)
    param.addcdiv_(moment, inf_norm, value=-lr / (1 - beta1**t))


adamax = declare(
    "adamax(Tensor(a!) param, Tensor grad, Tensor(b!) moment, Tensor(c!) inf_norm, Tensor(d!) step, "
    "Tensor rate, float factor, float beta1, float beta2, float epsilon) -> ()",
    _kernel,
    lambda *args: None,
)
SPEC = OpSpec(adamax, _kernel)

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
from argosy.engine.optimizers.lars_momentum import norms
from argosy.engine.optimizers.spec import OptimizerSetting, OptimizerSpec


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
    weight_decay: float,
) -> None:
    counts: list[float] = torch.cat(steps).tolist()
    torch._foreach_lerp_(moments1, grads, 1 - beta1)
    torch._foreach_mul_(moments2, beta2)
    torch._foreach_addcmul_(moments2, grads, grads, value=1 - beta2)
    roots = torch._foreach_div(moments2, [1 - beta2**t for t in counts])
    torch._foreach_sqrt_(roots)
    torch._foreach_add_(roots, epsilon)
    directions = torch._foreach_div(moments1, roots)
    del roots
    torch._foreach_div_(directions, [1 - beta1**t for t in counts])
    torch._foreach_add_(directions, params, alpha=weight_decay)
    sizes, lengths = norms(params, directions)
    trusts = [
        size / length if size > 0 and length > 0 else 1.0 for size, length in zip(sizes, lengths, strict=True)
    ]
    torch._foreach_mul_(directions, [-lr * trust for trust in trusts])
    torch._foreach_add_(params, directions)


SPEC = OptimizerSpec(
    "lamb",
    update,
    settings=(
        *BETAS,
        OptimizerSetting("epsilon", 1e-6, least=0),
        OptimizerSetting("lamb_weight_decay", 0.01, least=0, op_name="weight_decay"),
    ),
    slots=(*MOMENTS, STEP),
    takes_lists=True,
    is_elementwise=False,
    is_fused=True,
)

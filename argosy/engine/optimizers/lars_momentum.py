"""lars_momentum: momentum with a rate for each parameter from its norm (You et al. 2017).

local = lr · coeff · |p| / (|g| + decay · |p| + eps)        plain lr where decay or a norm is zero
v = mu · v + local · (g + decay · p)
p -= v
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

import torch
from torch import Tensor

from argosy.engine.optimizers.spec import OptimizerSetting, OptimizerSpec, Slot


def update(
    params: list[Tensor],
    grads: list[Tensor],
    velocities: list[Tensor],
    lr: float,
    mu: float,
    coeff: float,
    epsilon: float,
    weight_decay: float,
) -> None:
    torch._foreach_mul_(velocities, mu)
    if weight_decay > 0:
        rates = []
        for size, slope in zip(*norms(params, grads), strict=True):
            scale = coeff * size / (slope + weight_decay * size + epsilon) if size > 0 and slope > 0 else 1.0
            rates.append(lr * scale)
        changes = torch._foreach_add(grads, params, alpha=weight_decay)
        torch._foreach_mul_(changes, rates)
        torch._foreach_add_(velocities, changes)
    else:
        torch._foreach_add_(velocities, grads, alpha=lr)
    torch._foreach_sub_(params, velocities)


def norms(*lists: Sequence[Tensor]) -> list[list[float]]:
    """The 2-norms of the tensors of each list, all lists of one length, in one transfer from the device."""
    wide = torch.promote_types(lists[0][0].dtype, torch.float32)
    values = torch._foreach_norm([t for tensors in lists for t in tensors], 2, dtype=wide)
    flat: list[float] = torch.stack(values).tolist()
    size = len(lists[0])
    return [flat[first : first + size] for first in range(0, len(flat), size)]


SPEC = OptimizerSpec(
    "lars_momentum",
    update,
    settings=(
        OptimizerSetting("momentum", 0.9, least=0, op_name="mu"),
        OptimizerSetting("lars_coeff", 0.001, least=0, op_name="coeff"),
        OptimizerSetting("epsilon", 0.0, least=0),
        OptimizerSetting("lars_weight_decay", 0.0005, least=0, op_name="weight_decay"),
    ),
    slots=(Slot("velocity", "Velocity"),),
    takes_lists=True,
    is_elementwise=False,
    is_fused=True,
)

"""Loss scaling for float16: find gradients that overflowed, and adapt the scale.

    found_inf = found_inf(gradients)                                1 if any element is inf or NaN, else 0
    update_loss_scaling(scale, good_steps, bad_steps, found_inf, …)

Small gradients vanish in float16, so the loss is multiplied by a scale and the gradients are divided by it. Paddle's
rule: after `incr_every_n_steps` steps in a row without overflow the scale grows by `incr_ratio`, unless it would become
infinite; after `decr_every_n_nan_or_inf` steps in a row with overflow it shrinks by `decr_ratio`, to 1 at the least.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from argosy.engine.ops.op_spec import OpSpec, declare


def _found_inf(gradients: Sequence[Tensor]) -> Tensor:
    if not gradients:  # with sharding, a rank may have no shard
        return torch.zeros(1)
    largest = torch.stack([n.float() for n in torch._foreach_norm(list(gradients), math.inf)])
    return (~torch.isfinite(largest)).any().float().reshape(1)


def _update(
    scale: Tensor,
    good_steps: Tensor,
    bad_steps: Tensor,
    found_inf: Tensor,
    incr_every_n_steps: int,
    decr_every_n_nan_or_inf: int,
    incr_ratio: float,
    decr_ratio: float,
) -> None:
    if found_inf.item():
        good_steps.zero_()
        bad_steps.add_(1)
        if bad_steps.item() >= decr_every_n_nan_or_inf:
            scale.mul_(decr_ratio).clamp_(min=1.0)
            bad_steps.zero_()
        return
    bad_steps.zero_()
    good_steps.add_(1)
    if good_steps.item() >= incr_every_n_steps:
        if torch.isfinite(scale * incr_ratio).all():
            scale.mul_(incr_ratio)
        good_steps.zero_()


found_inf = declare("found_inf(Tensor[] gradients) -> Tensor", _found_inf, lambda gradients: torch.empty(1))
update_loss_scaling = declare(
    "update_loss_scaling(Tensor(a!) scale, Tensor(b!) good_steps, Tensor(c!) bad_steps, Tensor found_inf, "
    "int incr_every_n_steps, int decr_every_n_nan_or_inf, float incr_ratio, float decr_ratio) -> ()",
    _update,
    lambda *args: None,
)
SPECS = (OpSpec(found_inf, _found_inf), OpSpec(update_loss_scaling, _update))

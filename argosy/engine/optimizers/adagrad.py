"""adagrad: moment += g², p -= lr · g / (sqrt(moment) + eps), in one pass over memory."""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.optimizers.spec import OptimizerSetting, OptimizerSpec, Slot

_STEP = torch.ones(1)  # torch's kernel lets the rate fall with the step; with lr_decay=0 any step will do


def update(
    params: list[Tensor], grads: list[Tensor], moments: list[Tensor], lr: float, epsilon: float
) -> None:
    steps = [_STEP] * len(params)
    torch._fused_adagrad_(
        params, grads, moments, steps, lr=lr, lr_decay=0.0, weight_decay=0.0, eps=epsilon, maximize=False
    )


def update_rows(p: Tensor, g: Tensor, moment: Tensor, lr: float, epsilon: float) -> None:
    p.addcdiv_(g, moment.addcmul_(g, g).sqrt().add_(epsilon), value=-lr)


SPEC = OptimizerSpec(
    "adagrad",
    update,
    settings=(
        OptimizerSetting("epsilon", 1e-6, least=0),
        OptimizerSetting("initial_accumulator_value", 0.0, least=0, in_op=False),
    ),
    slots=(Slot("moment", "Moment", value_setting="initial_accumulator_value"),),
    takes_lists=True,
    update_rows=update_rows,
)

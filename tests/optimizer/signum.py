"""Signum, an optimizer that Argosy does not have, in one file: what CONTRIBUTING says a new one needs.

v = momentum · v + (1 - momentum) · (g + decay · p)
p -= lr · sign(v) / t^power                                    step t counts from 1
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.optimizers import register
from argosy.engine.optimizers.spec import OptimizerSetting, OptimizerSpec, Slot
from argosy.optimizer.optimizer import Decay, Names, Rate
from argosy.optimizer.spec_optimizer import SpecOptimizer

Tensors = list[Tensor]


def update(
    p: Tensor, g: Tensor, v: Tensor, step: Tensor, lr: float, mu: float, power: float, decay: float = 0.0
) -> None:
    """One parameter with a step count of one element, or n rows with n of them."""
    v.lerp_(g.add(p, alpha=decay), 1 - mu)
    p.sub_(torch.sign(v).mul_(lr * step.pow(-power)))


def update_lists(
    params: Tensors, grads: Tensors, velocities: Tensors, steps: Tensors, *settings: float
) -> None:
    for tensors in zip(params, grads, velocities, steps, strict=True):
        update(*tensors, *settings)


SPEC = register(
    OptimizerSpec(
        "signum",
        update_lists,
        settings=(
            OptimizerSetting("momentum", 0.9, least=0, below=1, op_name="mu"),
            OptimizerSetting("power", 0.0, least=0),
        ),
        slots=(Slot("velocity", "Velocity"), Slot("step", "Count", is_count=True)),
        takes_lists=True,
        update_rows=update,
        folds_l2=True,
        is_fused=True,
    )
)


class Signum(SpecOptimizer):
    """p -= lr · sign(v) / t^power; v is the running mean of g."""

    spec = SPEC

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        momentum: float = 0.9,
        power: float = 0.0,
        parameters: Names = None,
        weight_decay: Decay = None,
    ) -> None:
        super().__init__(learning_rate, parameters, weight_decay)
        self.configure(momentum=momentum, power=power)

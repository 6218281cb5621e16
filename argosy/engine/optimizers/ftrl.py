"""ftrl: follow the regularised leader, which sets small weights to exactly zero (McMahan et al. 2013).

    s' = s + g²
    l += g - (s'^k - s^k) / lr · p              k = -lr_power
    p  = (l1 · sign(l) - l) / (s'^k / lr + 2 · l2)  where |l| > l1, else 0

1e-10 is added to l1 and l2, as in Paddle. A rate of 0 changes nothing, where Paddle divides by it.
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.optimizers.spec import OptimizerSetting, OptimizerSpec, Slot


def update(
    param: Tensor,
    grad: Tensor,
    squared: Tensor,
    linear: Tensor,
    lr: float,
    l1: float,
    l2: float,
    lr_power: float,
) -> None:
    if lr == 0:
        return
    l1, l2 = l1 + 1e-10, l2 + 1e-10
    old = squared.pow(-lr_power)
    new = squared.addcmul_(grad, grad).pow(-lr_power)
    linear.add_(grad).addcmul_(old.sub_(new), param, value=1 / lr)
    shrunk = torch.nn.functional.softshrink(linear, l1)
    torch.div(shrunk, new.div_(-lr).sub_(2 * l2), out=param)


SPEC = OptimizerSpec(
    "ftrl",
    update,
    settings=(  # in a table, `l2` is weight decay
        OptimizerSetting("l1", 0.0, least=0, row_name="ftrl_l1"),
        OptimizerSetting("l2", 0.0, least=0, row_name="ftrl_l2"),
        OptimizerSetting("lr_power", -0.5, below=0),
    ),
    slots=(Slot("squared", "SquaredAccumulator"), Slot("linear", "LinearAccumulator")),
)

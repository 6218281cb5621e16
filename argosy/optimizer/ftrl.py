"""Ftrl."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from torch import Tensor

from argosy.engine.ir.variable import Parameter
from argosy.engine.ops.ftrl import ftrl
from argosy.framework.checks import number
from argosy.nn.clip import ClipGradBase
from argosy.optimizer.optimizer import Decay, Names, Optimizer, Rate, Slot


class Ftrl(Optimizer):
    """Follow the regularized leader (formula in engine/ops/ftrl.py); l1 makes weights exactly zero."""

    def __init__(  # Paddle's list
        self,
        learning_rate: Rate,
        l1: float = 0.0,
        l2: float = 0.0,
        lr_power: float = -0.5,
        parameters: Names = None,
        weight_decay: Decay = None,
        grad_clip: ClipGradBase | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        what = type(self).__name__
        self.l1 = number(f"{what} l1", l1, least=0)
        self.l2 = number(f"{what} l2", l2, least=0)
        self.lr_power = number(f"{what} lr_power", lr_power, below=0)

    def slots(self) -> Sequence[Slot]:
        return Slot("squared"), Slot("linear")

    def _update(
        self, parameter: Parameter, grad: Tensor, states: Sequence[Tensor], rate: Tensor, l2: float
    ) -> None:
        factor = parameter.learning_rate
        ftrl(parameter.value, grad, *states, rate, factor, self.l1, self.l2, self.lr_power)

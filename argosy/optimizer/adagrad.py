"""Adagrad."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from torch import Tensor

from argosy.engine.ir.variable import Parameter
from argosy.engine.ops.adagrad import adagrad
from argosy.framework.checks import number
from argosy.nn.clip import ClipGradBase
from argosy.optimizer.optimizer import Decay, Names, Optimizer, Rate, Slot


class Adagrad(Optimizer):
    """m += g², p -= lr · g / (sqrt(m) + epsilon); m starts at initial_accumulator_value."""

    def __init__(  # Paddle's list
        self,
        learning_rate: Rate,
        epsilon: float = 1e-6,
        parameters: Names = None,
        weight_decay: Decay = None,
        grad_clip: ClipGradBase | None = None,
        name: str | None = None,
        initial_accumulator_value: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        what, first = type(self).__name__, initial_accumulator_value
        self.epsilon = number(f"{what} epsilon", epsilon, least=0)
        self.initial_accumulator_value = number(f"{what} initial_accumulator_value", first, least=0)

    def slots(self) -> Sequence[Slot]:
        return (Slot("moment", self.initial_accumulator_value),)

    def _update(
        self, parameter: Parameter, grad: Tensor, states: Sequence[Tensor], rate: Tensor, l2: float
    ) -> None:
        adagrad(parameter.value, grad, *states, rate, parameter.learning_rate, self.epsilon)

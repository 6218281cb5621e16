"""Adamax."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from torch import Tensor

from argosy.engine.ir.variable import Parameter
from argosy.engine.ops.adamax import adamax
from argosy.nn.clip import ClipGradBase
from argosy.optimizer.adam import WithBetas
from argosy.optimizer.optimizer import Decay, Names, Rate, Slot


class Adamax(WithBetas):
    """p -= lr · m / n; n = max(|g|, beta2 · n + epsilon), m is the bias-corrected running mean of g.

    Epsilon is added to the old norm, as in Paddle (torch adds it to |g|).
    """

    def __init__(  # Paddle's list
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parameters: Names = None,
        weight_decay: Decay = None,
        grad_clip: ClipGradBase | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, parameters, weight_decay, grad_clip, name)

    def slots(self) -> Sequence[Slot]:
        return Slot("moment"), Slot("inf_norm"), Slot("step", is_count=True)

    def _update(
        self, parameter: Parameter, grad: Tensor, states: Sequence[Tensor], rate: Tensor, l2: float
    ) -> None:
        factor = parameter.learning_rate
        adamax(parameter.value, grad, *states, rate, factor, self.beta1, self.beta2, self.epsilon)

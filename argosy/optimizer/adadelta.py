"""Adadelta."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from torch import Tensor

from argosy.engine.ir.variable import Parameter
from argosy.engine.ops.adadelta import adadelta
from argosy.framework.checks import number
from argosy.nn.clip import ClipGradBase
from argosy.optimizer.optimizer import Decay, Names, Optimizer, Rate, Slot


class Adadelta(Optimizer):
    """p -= lr · u with u = sqrt((mean of u² + epsilon) / (mean of g² + epsilon)) · g, running means by rho.

    Paddle 2.0 ignores the learning rate here, as if it were 1; we use it, as later versions and torch do.
    """

    def __init__(  # Paddle's list
        self,
        learning_rate: Rate = 0.001,
        epsilon: float = 1e-6,
        rho: float = 0.95,
        parameters: Names = None,
        weight_decay: Decay = None,
        grad_clip: ClipGradBase | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.epsilon = number(f"{type(self).__name__} epsilon", epsilon, least=0)
        self.rho = number(f"{type(self).__name__} rho", rho, least=0, below=1)

    def slots(self) -> Sequence[Slot]:
        return Slot("_avg_squared_grad"), Slot("_avg_squared_update")  # Paddle's names have two underscores

    def _update(
        self, parameter: Parameter, grad: Tensor, states: Sequence[Tensor], rate: Tensor, l2: float
    ) -> None:
        adadelta(parameter.value, grad, *states, rate, parameter.learning_rate, self.rho, self.epsilon)

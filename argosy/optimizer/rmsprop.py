"""RMSProp."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from torch import Tensor

from argosy.engine.ir.variable import Parameter
from argosy.engine.ops.rmsprop import rmsprop
from argosy.framework.checks import number
from argosy.nn.clip import ClipGradBase
from argosy.optimizer.optimizer import Decay, Names, Optimizer, Rate, Slot


class RMSProp(Optimizer):
    """ms = running mean of g²; v = momentum · v + lr · g / sqrt(ms + epsilon); p -= v.

    Epsilon stands inside the root, as in Paddle (torch adds it outside). `centered` takes the square of the
    running mean of g from ms. Of Paddle's three state variables only those that are used are kept.
    """

    def __init__(  # Paddle's list
        self,
        learning_rate: Rate,
        rho: float = 0.95,
        epsilon: float = 1e-6,
        momentum: float = 0.0,
        centered: bool = False,
        parameters: Names = None,
        weight_decay: Decay = None,
        grad_clip: ClipGradBase | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        what = type(self).__name__
        self.rho = number(f"{what} rho", rho, least=0, below=1)
        self.epsilon = number(f"{what} epsilon", epsilon, least=0)
        self.momentum = number(f"{what} momentum", momentum, least=0)
        self.centered = bool(centered)

    def slots(self) -> Sequence[Slot]:
        used = {"mean_square": True, "mean_grad": self.centered, "momentum": self.momentum > 0}
        return [Slot(name) for name, on in used.items() if on]

    def _update(
        self, parameter: Parameter, grad: Tensor, states: Sequence[Tensor], rate: Tensor, l2: float
    ) -> None:
        left = iter(states)
        mean_square = next(left)
        mean_grad = next(left) if self.centered else None
        velocity = next(left, None)
        factor = parameter.learning_rate
        settings = self.rho, self.epsilon, self.momentum
        rmsprop(parameter.value, grad, mean_square, mean_grad, velocity, rate, factor, *settings)

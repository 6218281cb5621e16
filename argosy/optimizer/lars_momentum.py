"""LarsMomentum."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Parameter
from argosy.engine.ops.lars_momentum import lars_momentum
from argosy.framework.checks import number
from argosy.nn.clip import ClipGradBase
from argosy.optimizer.optimizer import Decay, Names, Optimizer, Rate, Slot


class LarsMomentum(Optimizer):
    """v = momentum · v + rate · (g + decay · p), p -= v; rate = lr · lars_coeff · |p| / (|g| + decay · |p|).

    `exclude_from_weight_decay`: substrings of names; a parameter with one of them has no decay and the plain rate.
    """

    def __init__(  # Paddle's list
        self,
        learning_rate: Rate = 0.001,
        momentum: float = 0.9,
        lars_coeff: float = 0.001,
        lars_weight_decay: float = 0.0005,
        parameters: Names = None,
        weight_decay: Decay = None,
        grad_clip: ClipGradBase | None = None,
        name: str | None = None,
        exclude_from_weight_decay: Sequence[str] | None = None,
        epsilon: float = 0,
    ) -> None:
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        what, excluded = type(self).__name__, exclude_from_weight_decay or ()
        self.momentum = number(f"{what} momentum", momentum, least=0)
        self.lars_coeff = number(f"{what} lars_coeff", lars_coeff, least=0)
        self.lars_weight_decay = number(f"{what} lars_weight_decay", lars_weight_decay, least=0)
        self.epsilon = number(f"{what} epsilon", epsilon, least=0)
        if isinstance(excluded, str) or not all(isinstance(part, str) for part in excluded):
            raise ConfigError(
                f"{what} exclude_from_weight_decay is {excluded!r}; use a list of substrings of names"
            )
        self.exclude_from_weight_decay = list(excluded)

    def slots(self) -> Sequence[Slot]:
        return (Slot("velocity"),)

    def _update(
        self, parameter: Parameter, grad: Tensor, states: Sequence[Tensor], rate: Tensor, l2: float
    ) -> None:
        excluded = any(part in parameter.name for part in self.exclude_from_weight_decay)
        decay = 0.0 if excluded else self.lars_weight_decay
        factor = parameter.learning_rate
        lars_momentum(
            parameter.value, grad, *states, rate, factor, self.momentum, self.lars_coeff, decay, self.epsilon
        )

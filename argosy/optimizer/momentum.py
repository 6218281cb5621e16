"""Momentum."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from torch import Tensor

from argosy.engine.ir.variable import Parameter
from argosy.engine.ops.momentum import momentum as update_momentum
from argosy.framework.checks import number
from argosy.nn.clip import ClipGradBase
from argosy.optimizer.multi_precision import MultiPrecision
from argosy.optimizer.optimizer import Decay, Names, Rate, Slot


class Momentum(MultiPrecision):
    """v = momentum · v + g, p -= lr · v; with use_nesterov p -= lr · (g + momentum · v).

    `multi_precision` updates a 16-bit parameter in float32 (master weights).
    """

    folds_l2 = True

    def __init__(  # Paddle's list
        self,
        learning_rate: Rate = 0.001,
        momentum: float = 0.9,
        parameters: Names = None,
        use_nesterov: bool = False,
        weight_decay: Decay = None,
        grad_clip: ClipGradBase | None = None,
        name: str | None = None,
        *,
        multi_precision: bool = False,
    ) -> None:
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.multi_precision = bool(multi_precision)
        self.momentum = number(f"{type(self).__name__} momentum", momentum, least=0)
        self.use_nesterov = bool(use_nesterov)

    def slots(self) -> Sequence[Slot]:
        return (Slot("velocity"),)

    def _update(
        self, parameter: Parameter, grad: Tensor, states: Sequence[Tensor], rate: Tensor, l2: float
    ) -> None:
        factor = parameter.learning_rate
        velocity, *master = states
        settings = factor, self.momentum, self.use_nesterov, l2
        update_momentum(parameter.value, grad, velocity, rate, *settings, *master)

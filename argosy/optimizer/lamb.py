"""Lamb."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence

from torch import Tensor

from argosy.engine.ir.variable import Parameter
from argosy.engine.ops.lamb import lamb
from argosy.framework.checks import number
from argosy.nn.clip import ClipGradBase
from argosy.optimizer.adam import WithBetas
from argosy.optimizer.optimizer import Names, Rate, optional_function


class Lamb(WithBetas):
    """Adam's direction u plus lamb_weight_decay · p; p -= lr · |p| / |u| · u.

    The running means are bias-corrected, as in the paper; in Paddle since its #29313 (2021).
    `exclude_from_weight_decay_fn`: a predicate on a Parameter, True if it does not decay.
    """

    def __init__(  # Paddle's list
        self,
        learning_rate: Rate = 0.001,
        lamb_weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        parameters: Names = None,
        grad_clip: ClipGradBase | None = None,
        exclude_from_weight_decay_fn: Callable[[Parameter], bool] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, parameters, None, grad_clip, name)
        self.lamb_weight_decay = number(
            f"{type(self).__name__} lamb_weight_decay", lamb_weight_decay, least=0
        )
        self.exclude_from_weight_decay_fn = optional_function(
            f"{type(self).__name__} exclude_from_weight_decay_fn", exclude_from_weight_decay_fn
        )

    def _update(
        self, parameter: Parameter, grad: Tensor, states: Sequence[Tensor], rate: Tensor, l2: float
    ) -> None:
        excluded = self.exclude_from_weight_decay_fn is not None and self.exclude_from_weight_decay_fn(
            parameter
        )
        decay = 0.0 if excluded else self.lamb_weight_decay
        factor = parameter.learning_rate
        lamb(parameter.value, grad, *states, rate, factor, self.beta1, self.beta2, self.epsilon, decay)

"""Adam and AdamW."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence

from torch import Tensor

from argosy.engine.ir.variable import Parameter
from argosy.engine.log import logger
from argosy.engine.ops.adam import adam, adamw
from argosy.framework.checks import number
from argosy.nn.clip import ClipGradBase
from argosy.optimizer.multi_precision import MultiPrecision
from argosy.optimizer.optimizer import Decay, Names, Optimizer, Rate, Slot, optional_function


class WithBetas(Optimizer):
    """The base of Adam-like optimizers: decay rates of two running means, and the epsilon of the denominator."""

    def __init__(  # Paddle's list
        self,
        learning_rate: Rate,
        beta1: float,
        beta2: float,
        epsilon: float,
        parameters: Names,
        weight_decay: Decay,
        grad_clip: ClipGradBase | None,
        name: str | None,
    ) -> None:
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        what = type(self).__name__
        self.beta1 = number(f"{what} beta1", beta1, least=0, below=1)
        self.beta2 = number(f"{what} beta2", beta2, least=0, below=1)
        self.epsilon = number(f"{what} epsilon", epsilon, least=0)

    def slots(self) -> Sequence[Slot]:
        return Slot("moment1"), Slot("moment2"), Slot("step", is_count=True)


class Adam(MultiPrecision, WithBetas):
    """p -= lr · m1 / (sqrt(m2) + epsilon); m1, m2 are the bias-corrected running means of g and g².

    <param>_step_0 counts the steps, where Paddle stores the powers of beta1 and beta2. `lazy_mode` updates only the
    rows of a sparse gradient in Paddle; gradients in a program are dense, so it has no effect and logs a warning.
    `multi_precision` updates a 16-bit parameter in float32 (master weights).
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
        lazy_mode: bool = False,
        *,
        multi_precision: bool = False,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, parameters, weight_decay, grad_clip, name)
        self.lazy_mode = bool(lazy_mode)
        self.multi_precision = bool(multi_precision)
        if lazy_mode:
            what = type(self).__name__
            logger.warning(
                "%s(lazy_mode=True) has no effect: gradients in a program are dense, so every row is updated",
                what,
            )

    def _update(
        self, parameter: Parameter, grad: Tensor, states: Sequence[Tensor], rate: Tensor, l2: float
    ) -> None:
        moments, master = states[:3], states[3:]
        settings = parameter.learning_rate, self.beta1, self.beta2, self.epsilon
        adam(parameter.value, grad, *moments, rate, *settings, *master)


class AdamW(Adam):
    """Adam with decoupled weight decay: first p *= 1 - lr · weight_decay.

    `apply_decay_param_fun`: a predicate on the parameter's name, True if it decays (default: all do).
    """

    def __init__(  # Paddle's list
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parameters: Names = None,
        weight_decay: float = 0.01,
        apply_decay_param_fun: Callable[[str], bool] | None = None,
        grad_clip: ClipGradBase | None = None,
        name: str | None = None,
        lazy_mode: bool = False,
        *,
        multi_precision: bool = False,
    ) -> None:
        super().__init__(
            learning_rate,
            beta1,
            beta2,
            epsilon,
            parameters,
            None,
            grad_clip,
            name,
            lazy_mode,
            multi_precision=multi_precision,
        )
        self.weight_decay = number(f"{type(self).__name__} weight_decay", weight_decay, least=0)
        self.apply_decay_param_fun = optional_function("AdamW: apply_decay_param_fun", apply_decay_param_fun)

    def _update(
        self, parameter: Parameter, grad: Tensor, states: Sequence[Tensor], rate: Tensor, l2: float
    ) -> None:
        decays = self.apply_decay_param_fun is None or self.apply_decay_param_fun(parameter.name)
        moments, master = states[:3], states[3:]
        settings = parameter.learning_rate, self.beta1, self.beta2, self.epsilon
        adamw(parameter.value, grad, *moments, rate, *settings, self.weight_decay if decays else 0.0, *master)

"""The optimizers, with Paddle's names and arguments; formulas and limits are in `engine/optimizers`."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import ClassVar

from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.log import logger
from argosy.engine.optimizers import OPTIMIZERS
from argosy.engine.optimizers.spec import Slot
from argosy.nn.clip import ClipGradBase
from argosy.optimizer import variable_betas
from argosy.optimizer.multi_precision import MultiPrecision
from argosy.optimizer.optimizer import Decay, Names, Rate, optional_function
from argosy.optimizer.spec_optimizer import SpecOptimizer

Clip = ClipGradBase | None


class SGD(SpecOptimizer):
    """p -= lr · g."""

    spec = OPTIMIZERS["sgd"]


class Momentum(MultiPrecision, SpecOptimizer):
    """v = momentum · v + g, p -= lr · v; with use_nesterov p -= lr · (g + momentum · v).

    `multi_precision` updates a 16-bit parameter in float32 (master weights).
    """

    spec = OPTIMIZERS["momentum"]

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        momentum: float = 0.9,
        parameters: Names = None,
        use_nesterov: bool = False,
        weight_decay: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
        *,
        multi_precision: bool = False,
    ) -> None:
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.multi_precision = bool(multi_precision)
        self.configure(momentum=momentum, use_nesterov=use_nesterov)


class LarsMomentum(SpecOptimizer):
    """v = momentum · v + rate · (g + decay · p), p -= v; rate = lr · lars_coeff · |p| / (|g| + decay · |p|).

    `exclude_from_weight_decay`: substrings of names; a parameter with one of them has no decay and the plain rate.
    """

    spec = OPTIMIZERS["lars_momentum"]

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        momentum: float = 0.9,
        lars_coeff: float = 0.001,
        lars_weight_decay: float = 0.0005,
        parameters: Names = None,
        weight_decay: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
        exclude_from_weight_decay: Sequence[str] | None = None,
        epsilon: float = 0,
    ) -> None:
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.configure(momentum=momentum, lars_coeff=lars_coeff, lars_weight_decay=lars_weight_decay)
        self.configure(epsilon=epsilon)
        excluded = exclude_from_weight_decay or ()
        if isinstance(excluded, str) or not all(isinstance(part, str) for part in excluded):
            raise ConfigError(
                f"{type(self).__name__} exclude_from_weight_decay is {excluded!r}; use a list of substrings of names"
            )
        self.exclude_from_weight_decay = list(excluded)

    def decays(self, parameter: Parameter) -> bool:
        return not any(part in parameter.name for part in self.exclude_from_weight_decay)


class Adagrad(SpecOptimizer):
    """m += g², p -= lr · g / (sqrt(m) + epsilon); m starts at initial_accumulator_value."""

    spec = OPTIMIZERS["adagrad"]

    def __init__(
        self,
        learning_rate: Rate,
        epsilon: float = 1e-6,
        parameters: Names = None,
        weight_decay: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
        initial_accumulator_value: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.configure(epsilon=epsilon, initial_accumulator_value=initial_accumulator_value)


class Adam(MultiPrecision, SpecOptimizer):
    """p -= lr · m1 / (sqrt(m2) + epsilon); m1, m2 are the bias-corrected running means of g and g².

    <param>_step_0 counts the steps, where Paddle stores the powers of beta1 and beta2. `lazy_mode` updates only the
    rows of a sparse gradient in Paddle; gradients in a program are dense, so it has no effect and logs a warning.
    `multi_precision` updates a 16-bit parameter in float32 (master weights). beta1 and beta2 may be Variables, which
    the program may change (`variable_betas.py`).
    """

    spec = OPTIMIZERS["adam"]
    variable_settings: ClassVar[tuple[str, ...]] = ("beta1", "beta2")

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float | Variable = 0.9,
        beta2: float | Variable = 0.999,
        epsilon: float = 1e-8,
        parameters: Names = None,
        weight_decay: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
        lazy_mode: bool = False,
        *,
        multi_precision: bool = False,
    ) -> None:
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.configure(beta1=beta1, beta2=beta2, epsilon=epsilon)
        self.lazy_mode, self.multi_precision = bool(lazy_mode), bool(multi_precision)
        if lazy_mode:
            logger.warning(
                "%s(lazy_mode=True) has no effect: gradients in a program are dense, so every row is updated",
                type(self).__name__,
            )
        if self._has_variable_betas:
            variable_betas.check(type(self).__name__, self._betas, self.multi_precision)

    @property
    def _betas(self) -> list[float | Variable]:
        return [getattr(self, name) for name in ("beta1", "beta2")]

    @property
    def _has_variable_betas(self) -> bool:
        return any(isinstance(beta, Variable) for beta in self._betas)

    def slots(self) -> Sequence[Slot]:
        return variable_betas.SLOTS if self._has_variable_betas else super().slots()

    def _update(
        self, parameter: Parameter, grad: Tensor, states: Sequence[Tensor], rate: Tensor, l2: float
    ) -> None:
        if not self._has_variable_betas:
            super()._update(parameter, grad, states, rate, l2)
            return
        epsilon: float = getattr(self, "epsilon")  # noqa: B009  (set by configure)
        variable_betas.update(parameter, grad, states, rate, self._betas, epsilon)


class AdamW(Adam):
    """Adam with decoupled weight decay: first p *= 1 - lr · weight_decay.

    `apply_decay_param_fun`: a predicate on the parameter's name, True if it decays (default: all do).
    """

    spec = OPTIMIZERS["adamw"]
    variable_settings = ()

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parameters: Names = None,
        weight_decay: float = 0.01,
        apply_decay_param_fun: Callable[[str], bool] | None = None,
        grad_clip: Clip = None,
        name: str | None = None,
        lazy_mode: bool = False,
        *,
        multi_precision: bool = False,
    ) -> None:
        common = parameters, None, grad_clip, name, lazy_mode
        super().__init__(learning_rate, beta1, beta2, epsilon, *common, multi_precision=multi_precision)
        self.configure(weight_decay=weight_decay)
        self.apply_decay_param_fun = optional_function("AdamW: apply_decay_param_fun", apply_decay_param_fun)

    def decays(self, parameter: Parameter) -> bool:
        return self.apply_decay_param_fun is None or self.apply_decay_param_fun(parameter.name)


class Adamax(SpecOptimizer):
    """p -= lr · m / n; n = max(|g|, beta2 · n + epsilon), m is the bias-corrected running mean of g.

    Epsilon is added to the old norm, as in Paddle (torch adds it to |g|).
    """

    spec = OPTIMIZERS["adamax"]

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parameters: Names = None,
        weight_decay: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.configure(beta1=beta1, beta2=beta2, epsilon=epsilon)


class Adadelta(SpecOptimizer):
    """p -= lr · u with u = sqrt((mean of u² + epsilon) / (mean of g² + epsilon)) · g, running means by rho.

    Paddle 2.0 ignores the learning rate here, as if it were 1; we use it, as later versions and torch do.
    """

    spec = OPTIMIZERS["adadelta"]

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        epsilon: float = 1e-6,
        rho: float = 0.95,
        parameters: Names = None,
        weight_decay: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.configure(epsilon=epsilon, rho=rho)


class RMSProp(SpecOptimizer):
    """ms = running mean of g²; v = momentum · v + lr · g / sqrt(ms + epsilon); p -= v.

    Epsilon stands inside the root, as in Paddle (torch adds it outside). `centered` takes the square of the
    running mean of g from ms. Of Paddle's three state variables only those that are used are kept.
    """

    spec = OPTIMIZERS["rmsprop"]

    def __init__(
        self,
        learning_rate: Rate,
        rho: float = 0.95,
        epsilon: float = 1e-6,
        momentum: float = 0.0,
        centered: bool = False,
        parameters: Names = None,
        weight_decay: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.configure(rho=rho, epsilon=epsilon, momentum=momentum, centered=centered)


class Ftrl(SpecOptimizer):
    """Follow the regularized leader (formula in engine/optimizers/ftrl.py); l1 makes weights exactly zero."""

    spec = OPTIMIZERS["ftrl"]

    def __init__(
        self,
        learning_rate: Rate,
        l1: float = 0.0,
        l2: float = 0.0,
        lr_power: float = -0.5,
        parameters: Names = None,
        weight_decay: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.configure(l1=l1, l2=l2, lr_power=lr_power)


class Lamb(SpecOptimizer):
    """Adam's direction u plus lamb_weight_decay · p; p -= lr · |p| / |u| · u.

    The running means are bias-corrected, as in the paper; in Paddle since its #29313 (2021).
    `exclude_from_weight_decay_fn`: a predicate on a Parameter, True if it does not decay.
    """

    spec = OPTIMIZERS["lamb"]

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        lamb_weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        parameters: Names = None,
        grad_clip: Clip = None,
        exclude_from_weight_decay_fn: Callable[[Parameter], bool] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameters, None, grad_clip, name)
        self.configure(beta1=beta1, beta2=beta2, epsilon=epsilon, lamb_weight_decay=lamb_weight_decay)
        what, excludes = type(self).__name__, exclude_from_weight_decay_fn
        self.exclude_from_weight_decay_fn = optional_function(
            f"{what} exclude_from_weight_decay_fn", excludes
        )

    def decays(self, parameter: Parameter) -> bool:
        return self.exclude_from_weight_decay_fn is None or not self.exclude_from_weight_decay_fn(parameter)


ALGORITHMS: tuple[type[SpecOptimizer], ...] = (
    SGD,
    Momentum,
    LarsMomentum,
    Adagrad,
    Adam,
    AdamW,
    Adamax,
    Adadelta,
    RMSProp,
    Ftrl,
    Lamb,
)
"""All of them."""

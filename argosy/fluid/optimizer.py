"""Optimizers with the names and arguments of Paddle 1.x."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from argosy import optimizer
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Parameter, Variable
from argosy.framework.missing import missing
from argosy.optimizer import averaging
from argosy.optimizer.algorithms import Clip
from argosy.optimizer.averaging import ExponentialMovingAverage
from argosy.optimizer.dgc_momentum import DGCMomentum
from argosy.optimizer.gradient_merge import GradientMergeOptimizer
from argosy.optimizer.look_ahead import LookAhead
from argosy.optimizer.optimizer import Decay, Names, Optimizer, ParamsGrads, Rate
from argosy.optimizer.recompute import RecomputeOptimizer
from argosy.optimizer.wrapper import Minimizer
from argosy.regularizer import to_regularizer

__all__ = [
    "SGD",
    "Adadelta",
    "AdadeltaOptimizer",
    "Adagrad",
    "AdagradOptimizer",
    "Adam",
    "AdamOptimizer",
    "Adamax",
    "AdamaxOptimizer",
    "DGCMomentumOptimizer",
    "ExponentialMovingAverage",
    "Ftrl",
    "FtrlOptimizer",
    "GradientMergeOptimizer",
    "Lamb",
    "LambOptimizer",
    "LarsMomentum",
    "LarsMomentumOptimizer",
    "LookaheadOptimizer",
    "ModelAverage",
    "Momentum",
    "MomentumOptimizer",
    "RMSProp",
    "RMSPropOptimizer",
    "RecomputeOptimizer",
    "SGDOptimizer",
]


class _Fluid(Optimizer):
    """The argument and method names that differ in 1.x: `parameter_list`, `current_step_lr`."""

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Names = None,
        no_grad_set: Names = None,
    ) -> tuple[list[fx.Node], ParamsGrads]:
        """Add backward and updates to the program; returns update nodes and (parameter, gradient) pairs."""
        return super().minimize(loss, startup_program, parameter_list, no_grad_set)

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Names = None,
        no_grad_set: Names = None,
        callbacks: Any = None,
    ) -> ParamsGrads:
        """Add the nodes that compute the gradients of `loss`; returns (parameter, gradient) pairs."""
        return super().backward(loss, startup_program, parameter_list, no_grad_set, callbacks)

    def current_step_lr(self) -> float:
        return self.get_lr()


class SGDOptimizer(_Fluid, optimizer.SGD):
    """optimizer.SGD."""

    def __init__(
        self,
        learning_rate: Rate,
        parameter_list: Names = None,
        regularization: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)


class MomentumOptimizer(_Fluid, optimizer.Momentum):
    """optimizer.Momentum."""

    def __init__(
        self,
        learning_rate: Rate,
        momentum: float,
        parameter_list: Names = None,
        use_nesterov: bool = False,
        regularization: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
    ) -> None:
        super().__init__(
            learning_rate, momentum, parameter_list, use_nesterov, regularization, grad_clip, name
        )


class DGCMomentumOptimizer(_Fluid, DGCMomentum):
    """optimizer.Momentum with compressed gradients; see `strategy.dgc`."""

    def __init__(
        self,
        learning_rate: Rate,
        momentum: float,
        rampup_begin_step: int,
        rampup_step: int = 1,
        sparsity: Sequence[float] = (0.999,),
        parameter_list: Names = None,
        use_nesterov: bool = False,
        num_trainers: int | None = None,
        regularization: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
    ) -> None:
        super().__init__(
            learning_rate,
            momentum,
            rampup_begin_step,
            rampup_step,
            sparsity,
            parameter_list,
            use_nesterov,
            num_trainers,
            regularization,
            grad_clip,
            name,
        )


class LarsMomentumOptimizer(_Fluid, optimizer.LarsMomentum):
    """optimizer.LarsMomentum."""

    def __init__(
        self,
        learning_rate: Rate,
        momentum: float,
        lars_coeff: float = 0.001,
        lars_weight_decay: float = 0.0005,
        parameter_list: Names = None,
        regularization: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
        exclude_from_weight_decay: Sequence[str] | None = None,
        epsilon: float = 0,
    ) -> None:
        super().__init__(
            learning_rate,
            momentum,
            lars_coeff,
            lars_weight_decay,
            parameter_list,
            regularization,
            grad_clip,
            name,
            exclude_from_weight_decay,
            epsilon,
        )


class AdagradOptimizer(_Fluid, optimizer.Adagrad):
    """optimizer.Adagrad."""

    def __init__(
        self,
        learning_rate: Rate,
        epsilon: float = 1e-6,
        parameter_list: Names = None,
        regularization: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
        initial_accumulator_value: float = 0.0,
    ) -> None:
        common = parameter_list, regularization, grad_clip, name
        super().__init__(learning_rate, epsilon, *common, initial_accumulator_value)


class AdamOptimizer(_Fluid, optimizer.Adam):
    """optimizer.Adam."""

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parameter_list: Names = None,
        regularization: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
        lazy_mode: bool = False,
    ) -> None:
        common = parameter_list, regularization, grad_clip, name
        super().__init__(learning_rate, beta1, beta2, epsilon, *common, lazy_mode)


class AdamaxOptimizer(_Fluid, optimizer.Adamax):
    """optimizer.Adamax."""

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parameter_list: Names = None,
        regularization: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
    ) -> None:
        common = parameter_list, regularization, grad_clip, name
        super().__init__(learning_rate, beta1, beta2, epsilon, *common)


class AdadeltaOptimizer(_Fluid, optimizer.Adadelta):
    """optimizer.Adadelta."""

    def __init__(
        self,
        learning_rate: Rate,
        epsilon: float = 1e-6,
        rho: float = 0.95,
        parameter_list: Names = None,
        regularization: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
    ) -> None:
        common = parameter_list, regularization, grad_clip, name
        super().__init__(learning_rate, epsilon, rho, *common)


class RMSPropOptimizer(_Fluid, optimizer.RMSProp):
    """optimizer.RMSProp."""

    def __init__(
        self,
        learning_rate: Rate,
        rho: float = 0.95,
        epsilon: float = 1e-6,
        momentum: float = 0.0,
        centered: bool = False,
        parameter_list: Names = None,
        regularization: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
    ) -> None:
        common = parameter_list, regularization, grad_clip, name
        super().__init__(learning_rate, rho, epsilon, momentum, centered, *common)


class FtrlOptimizer(_Fluid, optimizer.Ftrl):
    """optimizer.Ftrl."""

    def __init__(
        self,
        learning_rate: Rate,
        l1: float = 0.0,
        l2: float = 0.0,
        lr_power: float = -0.5,
        parameter_list: Names = None,
        regularization: Decay = None,
        grad_clip: Clip = None,
        name: str | None = None,
    ) -> None:
        common = parameter_list, regularization, grad_clip, name
        super().__init__(learning_rate, l1, l2, lr_power, *common)


class LambOptimizer(_Fluid, optimizer.Lamb):
    """optimizer.Lamb."""

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        lamb_weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        parameter_list: Names = None,
        regularization: Decay = None,
        grad_clip: Clip = None,
        exclude_from_weight_decay_fn: Callable[[Parameter], bool] | None = None,
        name: str | None = None,
    ) -> None:
        settings = lamb_weight_decay, beta1, beta2, epsilon
        super().__init__(
            learning_rate, *settings, parameter_list, grad_clip, exclude_from_weight_decay_fn, name
        )
        self.regularization = to_regularizer(regularization, "LambOptimizer regularization")


class LookaheadOptimizer(LookAhead):
    """incubate.optimizer.LookAhead."""

    def __init__(self, inner_optimizer: Minimizer, alpha: float = 0.5, k: int = 5) -> None:
        super().__init__(inner_optimizer, alpha, k)


class ModelAverage(averaging.ModelAverage):
    """incubate.ModelAverage, which averages all parameters."""

    def __init__(
        self,
        average_window_rate: float,
        min_average_window: int = 10000,
        max_average_window: int = 10000,
        regularization: Decay = None,
        name: str | None = None,
    ) -> None:
        if regularization is not None:
            raise ConfigError("ModelAverage: regularization has no effect; give it to the optimizer")
        super().__init__(average_window_rate, None, min_average_window, max_average_window, name)


SGD = SGDOptimizer
Momentum = MomentumOptimizer
LarsMomentum = LarsMomentumOptimizer
Adagrad = AdagradOptimizer
Adam = AdamOptimizer
Adamax = AdamaxOptimizer
Adadelta = AdadeltaOptimizer
RMSProp = RMSPropOptimizer
Ftrl = FtrlOptimizer
Lamb = LambOptimizer

__getattr__ = missing(__name__, globals())

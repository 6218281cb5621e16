"""Optimizers with the names and arguments of Paddle 1.x."""

# SPDX-License-Identifier: Apache-2.0
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import fx

from argosy import optimizer
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Parameter, Variable
from argosy.framework.missing import missing
from argosy.framework.variant import arguments, signature_of
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


_NAMES_IN_1X = {"parameters": "parameter_list", "weight_decay": "regularization"}
_NAMES_IN_2X = {old: new for new, old in _NAMES_IN_1X.items()}


class _Fluid(Optimizer):
    """The argument and method names that differ in 1.x: `parameter_list`, `regularization`, `current_step_lr`.

    class Adadelta…(_Fluid, optimizer.Adadelta, required="learning_rate")    its arguments, with the names of 1.x
    """

    if TYPE_CHECKING:

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __init_subclass__(cls, required: str | None = None) -> None:
        """`required`: the arguments that have no default in 1.x; None: the class has its own constructor."""
        super().__init_subclass__()
        if required is None:
            return
        inherited: Any = cls.__init__
        defaults = dict.fromkeys(required.split(), inspect.Parameter.empty)
        full = signature_of(
            inherited, 0, "", defaults
        )  # without those that are keyword-only, which 1.x does not have
        renamed = [p.replace(name=_NAMES_IN_1X.get(name, name)) for name, p in full.parameters.items()]
        signature = full.replace(parameters=renamed)

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            given = arguments(f"{cls.__name__}.__init__", signature, (self, *args), kwargs)
            inherited(**{_NAMES_IN_2X.get(name, name): value for name, value in given.items()})

        init: Any = __init__
        init.__qualname__, init.__module__ = f"{cls.__name__}.__init__", cls.__module__
        init.__signature__ = signature
        setattr(cls, "__init__", init)  # noqa: B010  (mypy rejects an assignment to a method)

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


class SGDOptimizer(_Fluid, optimizer.SGD, required="learning_rate"):
    """optimizer.SGD."""


class MomentumOptimizer(_Fluid, optimizer.Momentum, required="learning_rate momentum"):
    """optimizer.Momentum."""


class DGCMomentumOptimizer(_Fluid, DGCMomentum, required="learning_rate momentum rampup_begin_step"):
    """optimizer.Momentum with compressed gradients; see `strategy.dgc`."""


class LarsMomentumOptimizer(_Fluid, optimizer.LarsMomentum, required="learning_rate momentum"):
    """optimizer.LarsMomentum."""


class AdagradOptimizer(_Fluid, optimizer.Adagrad, required=""):
    """optimizer.Adagrad."""


class AdamOptimizer(_Fluid, optimizer.Adam, required=""):
    """optimizer.Adam."""


class AdamaxOptimizer(_Fluid, optimizer.Adamax, required=""):
    """optimizer.Adamax."""


class AdadeltaOptimizer(_Fluid, optimizer.Adadelta, required="learning_rate"):
    """optimizer.Adadelta."""


class RMSPropOptimizer(_Fluid, optimizer.RMSProp, required=""):
    """optimizer.RMSProp."""


class FtrlOptimizer(_Fluid, optimizer.Ftrl, required=""):
    """optimizer.Ftrl."""


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

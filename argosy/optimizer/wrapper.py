"""OptimizerWrapper: an optimizer that changes what another one does with its gradients or parameters."""

# SPDX-License-Identifier: Apache-2.0
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import fx

from argosy.engine.errors import ArgumentTypeError, ConfigError
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.scope import global_scope
from argosy.optimizer.optimizer import Names, ParamsGrads


@runtime_checkable
class Minimizer(Protocol):
    """An Optimizer, or a wrapper of one such as `static.amp`'s."""

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameters: Names = None,
        no_grad_set: Names = None,
        callbacks: Any = None,
        /,
    ) -> ParamsGrads: ...

    def apply_gradients(self, params_grads: Any, /) -> list[fx.Node]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def set_state_dict(self, state_dict: dict[str, Any], /) -> None: ...


class TwoStepMinimize(ABC):
    """`minimize` as `backward`, then `apply_gradients`."""

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Names = None,
        no_grad_set: Names = None,
    ) -> tuple[list[fx.Node], ParamsGrads]:
        """Add backward and updates to the program; returns update nodes and (parameter, gradient) pairs."""
        params_grads = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_optimize(loss, startup_program, params_grads), params_grads

    @abstractmethod
    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Names = None,
        no_grad_set: Names = None,
        callbacks: Any = None,
    ) -> ParamsGrads:
        """Add the nodes that compute the gradients of `loss`; returns (parameter, gradient) pairs."""

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: ParamsGrads
    ) -> list[fx.Node]:
        """`apply_gradients`, with the initial values of new variables in `startup_program`."""
        with program_guard(loss.program, startup_program):
            return self.apply_gradients(params_grads)

    @abstractmethod
    def apply_gradients(self, params_grads: ParamsGrads) -> list[fx.Node]:
        """Add the updates of these pairs; returns the update nodes."""


class OptimizerWrapper(TwoStepMinimize):
    """The base class; a subclass defines `apply_gradients`. Everything else is the inner optimizer's."""

    accepts_wrappers: ClassVar[bool] = False
    """True: the inner optimizer may be such a wrapper itself."""

    def __init__(self, inner_optimizer: Minimizer) -> None:
        what = type(self).__name__
        is_wrapper = isinstance(inner_optimizer, OptimizerWrapper)
        if not isinstance(inner_optimizer, Minimizer) or (is_wrapper and not self.accepts_wrappers):
            raise ArgumentTypeError(
                f"{what}: inner_optimizer is a {type(inner_optimizer).__name__}; give an optimizer, such as "
                "optimizer.Momentum(…)"
            )
        self.inner_optimizer = inner_optimizer
        self._variables: list[str] = []
        """The variables of the scope that the wrapper has added."""

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Names = None,
        no_grad_set: Names = None,
        callbacks: Any = None,
    ) -> ParamsGrads:
        """Add the nodes that compute the gradients of `loss`; returns (parameter, gradient) pairs."""
        return self.inner_optimizer.backward(loss, startup_program, parameter_list, no_grad_set, callbacks)

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's state, and copies of the wrapper's variables in the global scope."""
        values = {name: global_scope().peek(name).clone() for name in self._variables}
        return self.inner_optimizer.state_dict() | values

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of `state_dict` into the global scope; a missing entry raises."""
        if missing := [name for name in self._variables if name not in state_dict]:
            raise ConfigError(f"the state has no {missing[0]!r}; load one that {type(self).__name__} saved")
        self.inner_optimizer.set_state_dict(state_dict)
        for name in self._variables:
            global_scope().var(name).get_tensor().set(state_dict[name])

    def __getattr__(self, name: str) -> Any:
        if name == "inner_optimizer":
            raise AttributeError(name)  # during copy.copy the attribute does not exist yet
        return getattr(self.inner_optimizer, name)

"""Optimizer: adds the updates after the backward part of a program.

    w@GRAD ──▶ clip ──▶ + weight decay ──▶ update(w, grad, w_velocity_0, learning_rate_0)      role optimize

The update is one node for each parameter, which mutates it and its state in place. The rate is a variable
of the scope, so that a new rate needs no recompilation.
"""

# SPDX-License-Identifier: Apache-2.0
import copy
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, Self, TypeVar

import torch
from torch import Tensor, fx

from argosy.engine.errors import ArgumentTypeError, ConfigError, UnsupportedError
from argosy.engine.ir import names
from argosy.engine.ir.backward import append_backward, record_seeds
from argosy.engine.ir.gc_pause import paused_gc
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.ir.training_info import OptimizerCall
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.optimizers.spec import Slot
from argosy.engine.runtime.scope import global_scope
from argosy.framework.checks import number
from argosy.framework.initializer import Constant
from argosy.framework.layer import create_state
from argosy.nn.clip import ClipGradBase
from argosy.optimizer.lr import LRScheduler
from argosy.regularizer import L2Decay, WeightDecay, to_regularizer

ParamsGrads = list[tuple[Parameter, Variable]]
Rate = float | LRScheduler | Variable
Decay = float | WeightDecay | None
Names = Iterable[Variable | str] | None
F = TypeVar("F", bound=Callable[..., bool])


class Optimizer:
    """The base class: rate, state, clipping and weight decay. A subclass defines its formula in `_update`.

    `learning_rate`: a number, a scheduler, or a Variable with one number, which the program may compute.
    `parameters`: which to train, as Parameters or names (default: all that are trainable).
    `weight_decay`: a number is L2Decay; a parameter's own regularizer takes precedence. It is added after clipping.
    """

    folds_l2 = False
    """True: `_update` adds L2 decay itself, which saves a node and a pass over memory."""

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        parameters: Names = None,
        weight_decay: Decay = None,
        grad_clip: ClipGradBase | None = None,
        name: str | None = None,
    ) -> None:
        what = type(self).__name__
        if isinstance(learning_rate, Variable):
            _check_rate(what, learning_rate)
        elif not isinstance(learning_rate, LRScheduler):
            learning_rate = number(f"{what} learning_rate", learning_rate, least=0)
        if grad_clip is not None and not isinstance(grad_clip, ClipGradBase):
            raise ArgumentTypeError(
                f"{what}: grad_clip is {grad_clip!r}; use nn.ClipGradByGlobalNorm or another nn.ClipGradBase"
            )
        self.learning_rate: Rate = learning_rate
        self.parameters = _listed(f"{what} parameters", parameters)
        self.regularization = to_regularizer(weight_decay, f"{what} weight_decay")
        self.grad_clip = grad_clip
        self.name = name
        self._reset_state()

    def _reset_state(self) -> None:
        # names rather than Variables, which would keep their program alive
        self._rates: weakref.WeakKeyDictionary[Program, str] = weakref.WeakKeyDictionary()
        self._states: weakref.WeakKeyDictionary[Program, dict[tuple[str, str], str]] = (
            weakref.WeakKeyDictionary()
        )

    def copy_without_state(self) -> Self:
        """An optimizer with the same settings that has no variables yet, as for the blocks of a parameter server."""
        copied = copy.copy(self)
        copied._reset_state()
        return copied

    # --- for subclasses -------------------------------------------------------------------------------

    def slots(self) -> Sequence[Slot]:
        """The state of each parameter, in the order in which `_update` gets it."""
        return ()

    def _update(
        self, parameter: Parameter, grad: Tensor, states: Sequence[Tensor], rate: Tensor, l2: float
    ) -> None:
        """Record the update of one parameter; `l2` is 0 unless `folds_l2`."""
        raise NotImplementedError(f"{type(self).__name__} has no _update; define it")

    # --- building -------------------------------------------------------------------------------------

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameters: Names = None,
        no_grad_set: Names = None,
    ) -> tuple[list[fx.Node], ParamsGrads]:
        """Add backward and updates to the program; returns update nodes and (parameter, gradient) pairs."""
        params_grads = self.backward(loss, startup_program, parameters, no_grad_set)
        return self.apply_optimize(loss, startup_program, params_grads), params_grads

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameters: Names = None,
        no_grad_set: Names = None,
        callbacks: Any = None,
    ) -> ParamsGrads:
        """Add the nodes that compute the gradients of `loss`; returns (parameter, gradient) pairs."""
        wanted = _listed("parameters", parameters)
        return append_backward(
            loss, wanted if wanted is not None else self.parameters, no_grad_set, callbacks
        )

    @paused_gc()
    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: ParamsGrads
    ) -> list[fx.Node]:
        """`apply_gradients`, with the initial values of new variables in `startup_program`."""
        with program_guard(loss.program, startup_program):
            return self.apply_gradients(params_grads)

    def apply_gradients(self, params_grads: Sequence[tuple[Parameter, Variable | None]]) -> list[fx.Node]:
        """Add clipping, weight decay and updates for these pairs; returns the update nodes."""
        pairs = [(p, g) for p, g in params_grads if g is not None and p.trainable]
        _check_pairs(pairs)
        program = pairs[0][0].program
        for _, gradient in pairs:
            record_seeds(gradient)
        with program_guard(program):
            rate = self._rate(program).value
            states = [[state.value for state in self._states_of(p)] for p, _ in pairs]
        updates, clipped = [], []
        with program.recording("optimize"), torch.no_grad():
            for (parameter, _), grad, state in zip(pairs, self._clipped(pairs), states, strict=True):
                clipped.append(grad)
                decayed, l2 = self._decayed(parameter, grad)
                self._update(parameter, decayed, state, rate, l2)
                updates.append(next(reversed(program.graph.nodes)))
        trained, gradients = tuple(p.name for p, _ in pairs), tuple(g.name for _, g in pairs)
        state_names = dict(self._states.get(program, {}))
        call = OptimizerCall(self, trained, gradients, tuple(clipped), self._rates[program], state_names)
        program.training = program.training.with_call(call)
        return updates

    def _clipped(self, pairs: ParamsGrads) -> Iterator[Tensor]:
        """The gradients after clipping, each computed lazily."""
        return self.grad_clip.clipped(pairs) if self.grad_clip else (g.value for _, g in pairs)

    def _decayed(self, parameter: Parameter, grad: Tensor) -> tuple[Tensor, float]:
        """The gradient with weight decay, and the coefficient of the L2 decay that the update must add."""
        parameter_decay = to_regularizer(
            parameter.regularizer, f"regularizer of parameter {parameter.name!r}"
        )
        decay = self.regularization if parameter_decay is None else parameter_decay
        if decay is None or decay.coeff == 0:
            return grad, 0.0
        if self.folds_l2 and isinstance(decay, L2Decay):
            return grad, decay.coeff
        return decay(parameter.value, grad), 0.0

    def _rate(self, program: Program) -> Variable:
        if program not in self._rates:
            self._rates[program] = self._new_rate(program)
        return program.var(self._rates[program])

    def _new_rate(self, program: Program) -> str:
        if isinstance(self.learning_rate, Variable):
            return _rate_variable(program, self.learning_rate)
        scheduler = self.learning_rate if isinstance(self.learning_rate, LRScheduler) else None
        for name, other in program.training.schedulers:
            if other is scheduler:
                return name  # two optimizers with one schedule: it must not step twice in a run
        name = names.generate_unused("learning_rate", program.vars)
        create_state(name, [1], "float32", Constant(self.get_lr()))
        if scheduler is not None:
            program.training = program.training.with_scheduler(name, scheduler)
        return name

    def _states_of(self, parameter: Parameter) -> list[Variable]:
        """The variables of the parameter's slots, created on first use."""
        return [self._state(parameter, slot, parameter.dtype) for slot in self.slots()]

    def _state(
        self, parameter: Parameter, slot: Slot, dtype: torch.dtype, initializer: Any = None
    ) -> Variable:
        program = parameter.program
        known = self._states.setdefault(program, {})
        key = parameter.name, slot.name
        if key not in known:
            prefix = "_".join(filter(None, (parameter.name, self.name, slot.name)))
            known[key] = names.generate_unused(prefix, program.vars)
            shape, dtype = ([1], torch.float32) if slot.is_count else (parameter.shape, dtype)
            create_state(known[key], shape, dtype, initializer or Constant(slot.value))
        return program.var(known[key])

    # --- while training -------------------------------------------------------------------------------

    def get_lr(self) -> float:
        """The current rate: the scheduler's, or the one in the global scope, or the one given."""
        if isinstance(self.learning_rate, LRScheduler):
            return self.learning_rate()
        if isinstance(self.learning_rate, Variable):
            return _current_rate(self.learning_rate)
        rates = [global_scope().values_of().get(name) for name in self._rates.values()]
        values = [value.item() for value in rates if value is not None]
        given = torch.tensor(self.learning_rate, dtype=torch.float32).item()  # rounded, like the variable
        return self.learning_rate if not values or values[0] == given else values[0]

    def set_lr(self, value: float) -> None:
        """Set the learning rate in the global scope, from the next run on."""
        new = number(f"{type(self).__name__} learning rate", value, least=0)
        if isinstance(self.learning_rate, LRScheduler):
            raise ConfigError(
                f"set_lr({value}): the rate comes from {type(self.learning_rate).__name__}; "
                "step the scheduler, or give the optimizer a number"
            )
        if isinstance(self.learning_rate, Variable):
            _current_rate(self.learning_rate)
            global_scope().get(self.learning_rate.name).fill_(new)
            return
        scope = global_scope()
        for name in self._rates.values():
            if scope.values_of().get(name) is None:
                raise ConfigError(
                    f"set_lr({value}): {name!r} has no value in the global scope yet; "
                    "run the startup program first, it would overwrite the rate"
                )
        for name in self._rates.values():
            scope.get(name).fill_(new)
        self.learning_rate = new

    def state_dict(self) -> dict[str, Any]:
        """Copies of the optimizer's variables in the global scope, by name, and the scheduler's state."""
        state: dict[str, Any] = {name: global_scope().peek(name).clone() for name in self._state_names()}
        if isinstance(self.learning_rate, LRScheduler):
            state["LR_Scheduler"] = self.learning_rate.state_dict()
        return state

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of `state_dict` into the global scope; a missing entry raises."""
        wanted = [
            *self._state_names(),
            *(["LR_Scheduler"] if isinstance(self.learning_rate, LRScheduler) else []),
        ]
        missing = [name for name in wanted if name not in state_dict]
        if missing:
            raise ConfigError(
                f"the state has no {missing[0]!r}; load one that {type(self).__name__} saved for this model"
            )
        for name in self._state_names():
            global_scope().var(name).get_tensor().set(state_dict[name])
        if isinstance(self.learning_rate, LRScheduler):
            self.learning_rate.set_state_dict(state_dict["LR_Scheduler"])

    def step(self) -> NoReturn:
        """Raises a ConfigError: the update is part of the program."""
        raise UnsupportedError(
            "optimizer.step() is eager style; a static program updates in Executor.run: "
            "call minimize(loss) once while the program is built"
        )

    def clear_grad(self) -> NoReturn:
        """Raises a ConfigError: a static program has no gradients between its runs."""
        raise UnsupportedError(
            "optimizer.clear_grad() is eager style; a static program computes new gradients in every "
            "Executor.run: leave the call out"
        )

    clear_gradients = clear_grad

    def _state_names(self) -> list[str]:
        return list(dict.fromkeys(name for states in self._states.values() for name in states.values()))


def optimizer_of(call: OptimizerCall) -> Optimizer:
    """The optimizer that made a call."""
    assert isinstance(call.optimizer, Optimizer), f"{call.optimizer!r} is not an Optimizer"
    return call.optimizer


def _check_rate(what: str, rate: Variable) -> None:
    if rate.value.numel() != 1 or not rate.dtype.is_floating_point:
        raise ArgumentTypeError(
            f"{what} learning_rate is {rate!r}; use a Variable with one floating-point number"
        )


def _rate_variable(program: Program, rate: Variable) -> str:
    """The name of the rate in the program, which may be a copy of the one that the rate was built in."""
    if rate.name not in program.vars:
        raise UnsupportedError(
            f"the learning rate {rate.name!r} is a Variable of {rate.program.name!r} and not in {program.name!r}; use "
            "a number or a scheduler where another program updates the parameters, as on parameter servers"
        )
    return rate.name


def _current_rate(rate: Variable) -> float:
    value = global_scope().values_of().get(rate.name)
    if value is None or not rate.persistable:
        raise ConfigError(
            f"the learning rate {rate.name!r} has no value in the global scope; fetch it, or run the startup program"
        )
    return float(value.item())


def _check_pairs(pairs: ParamsGrads) -> None:
    if not pairs:
        raise ConfigError("no gradient to apply: no trainable parameter has one; check stop_gradient")
    program, seen = pairs[0][0].program, set()
    for parameter, grad in pairs:
        program.check_owner(parameter)
        program.check_owner(grad)
        if parameter.name in seen:
            raise ConfigError(
                f"parameter {parameter.name!r} is listed twice and would be updated twice; list it once"
            )
        seen.add(parameter.name)


def _listed(what: str, parameters: Any) -> list[Variable | str] | None:
    """The parameters as a list; groups of them (dicts) are not supported."""
    if parameters is None:
        return None
    if isinstance(parameters, str | Variable | dict) or not isinstance(parameters, Iterable):
        raise ArgumentTypeError(f"{what} is {parameters!r}; use a list of parameters or their names")
    listed = list(parameters)
    for item in listed:
        if not isinstance(item, Variable | str):
            raise ArgumentTypeError(
                f"{what} holds {item!r}; use parameters or their names (groups are not supported)"
            )
    return listed


def optional_function(what: str, given: F | None) -> F | None:
    """Return `given` if it is None or callable; raise otherwise."""
    if given is not None and not callable(given):
        raise ArgumentTypeError(f"{what} is {given!r}; use a function or None")
    return given

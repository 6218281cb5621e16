"""Averages of the weights over training, for evaluation.

ema = paddle.static.ExponentialMovingAverage(0.999)
ema.update()                                               after minimize: each run of the program updates the averages
…
with ema.apply(exe):                                       the parameters are the averages inside
    exe.run(test_program, …)

The averages are over the parameters and the running statistics of batch norms, as in Paddle, except those with
ParamAttr(do_model_average=False). They are variables of the scope, so checkpoints contain them. Under fleet all ranks
have equal parameters, so each of them computes the same averages without communication; under LocalSGD, where they
differ, each rank has the averages of its own.
"""

# SPDX-License-Identifier: Apache-2.0
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from argosy.engine.errors import ArgumentTypeError, ConfigError, ScopeError, UnsupportedError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.ops.batch_norm import update_running_stats
from argosy.engine.ops.weight_average import accumulate_average, update_ema
from argosy.engine.runtime.scope import Scope, global_scope
from argosy.framework.checks import integer, number
from argosy.framework.initializer import Constant
from argosy.framework.layer import NOT_AVERAGED, create_state

_SUMS = ("sum_1", "sum_2", "sum_3")
_COUNTS = ("num_accumulates", "old_num_accumulates", "num_updates")


class _Averages(ABC):
    """Replaces the values of variables by their averages, and restores them."""

    def __init__(self) -> None:
        self._backup: tuple[Scope, dict[str, Tensor]] | None = None

    @abstractmethod
    def _averaged(self, scope: Scope) -> dict[str, Tensor]:
        """The averages by the name of the variable that they replace."""

    @contextmanager
    def apply(self, executor: Any = None, need_restore: bool = True) -> Iterator[None]:
        """The parameters of the global scope are the averages inside; they stay if `need_restore` is False."""
        if self._backup is not None:
            raise ConfigError(f"{type(self).__name__}.apply was called twice; call restore(executor) before")
        scope = global_scope()
        averaged = self._averaged(scope)
        self._backup = scope, {name: scope.peek(name).clone() for name in averaged}
        for name, value in averaged.items():
            scope.write(
                name, value
            )  # not in place: under strategy.sharding other ranks may read the same memory
        try:
            yield
        finally:
            if need_restore:
                self.restore(executor)

    def restore(self, executor: Any = None) -> None:
        """Set the parameters to the values before `apply`."""
        if self._backup is None:
            raise ConfigError(
                f"{type(self).__name__}.restore: nothing was applied; call apply(executor) first"
            )
        scope, values = self._backup
        for name, value in values.items():
            shared = scope.shared.get(name, scope.host.shared.get(name))
            if shared is not None and torch.equal(shared, value):  # no rank has trained since `apply`
                scope.put(name, shared, is_owned=True)
            else:
                scope.write(name, value)
        self._backup = None


class ExponentialMovingAverage(_Averages):
    """average = decay · average + (1 - decay) · parameter, from 0; `apply` divides it by 1 - decay^updates.

    `thres_steps`: a Variable with one number, such as the step; the decay is then at most (1 + thres_steps) /
    (10 + thres_steps).
    """

    def __init__(
        self, decay: float = 0.999, thres_steps: Variable | None = None, name: str | None = None
    ) -> None:
        super().__init__()
        self._decay = number("ExponentialMovingAverage decay", decay, least=0, below=1)
        if thres_steps is not None and (
            not isinstance(thres_steps, Variable) or thres_steps.value.numel() != 1
        ):
            raise ArgumentTypeError(
                f"ExponentialMovingAverage: thres_steps is {thres_steps!r}; use a Variable with one number"
            )
        self._thres_steps, self._prefix = thres_steps, f"{name}_ema" if name else "ema"
        self._names: dict[str, str] = {}
        """Parameter -> its average."""
        self._used_decay, self._count = "", ""

    def update(self) -> None:
        """Add the update of the averages to the default main program; call it once, after minimize."""
        if self._names:
            raise ConfigError(
                "ExponentialMovingAverage.update was called twice; each run of the program updates"
            )
        program = default_main_program()
        variables = _averaged_variables(program, "ExponentialMovingAverage.update")
        self._used_decay = _new_state(program, f"{self._prefix}_decay", [1], torch.float32, self._decay)
        self._count = _new_state(program, f"{self._prefix}_steps", [1], torch.int64)
        for v in variables:
            self._names[v.name] = _new_average(v, self._prefix)
        with program.recording("optimize"), torch.no_grad():
            decay = program.var(self._used_decay).value
            if self._thres_steps is not None:
                steps = self._thres_steps.value.detach().to(torch.float32).reshape(1)
                decay.copy_(((1 + steps) / (10 + steps)).clamp(max=self._decay))
            program.var(self._count).value.add_(1)
            for v in variables:
                update_ema(v.value.detach(), program.var(self._names[v.name]).value, decay)

    def _averaged(self, scope: Scope) -> dict[str, Tensor]:
        steps = _steps(scope, self._count, "ExponentialMovingAverage")
        factor = 1 - float(scope.peek(self._used_decay).item()) ** steps
        return {name: scope.peek(average) / factor for name, average in self._names.items()}


class Sums(NamedTuple):
    """The variables of a ModelAverage for one parameter."""

    sums: tuple[str, ...]
    counts: tuple[str, ...]


class ModelAverage(_Averages):
    """The mean of the parameters over a window of the last steps; create it after minimize.

    The window has between `min_average_window` and `max_average_window` steps, about `average_window_rate` of all
    steps; see engine/ops/weight_average.py.
    """

    def __init__(
        self,
        average_window_rate: float,
        parameters: Sequence[Variable | str] | None = None,
        min_average_window: int = 10000,
        max_average_window: int = 10000,
        name: str | None = None,
    ) -> None:
        super().__init__()
        rate = number("ModelAverage average_window_rate", average_window_rate, least=0)
        least = integer("ModelAverage min_average_window", min_average_window, least=1)
        most = integer("ModelAverage max_average_window", max_average_window, least=least)
        program = default_main_program()
        variables = _averaged_variables(program, "ModelAverage", parameters)
        prefix = f"{name}_" if name else ""
        self._names: dict[str, Sums] = {}
        for v in variables:
            sums = [_new_average(v, f"{prefix}{part}") for part in _SUMS]
            counts = [_new_state(program, f"{v.name}_{prefix}{part}", [1], torch.int64) for part in _COUNTS]
            self._names[v.name] = Sums(tuple(sums), tuple(counts))
        with program.recording("optimize"), torch.no_grad():
            for v in variables:
                states = [program.var(n).value for part in self._names[v.name] for n in part]
                accumulate_average(v.value.detach(), *states, rate, least, most)

    def minimize(self, *args: Any, **kwargs: Any) -> None:
        """Raises a ConfigError: the optimizer minimizes, and creating a ModelAverage adds the sums."""
        raise UnsupportedError(
            "ModelAverage.minimize is eager style; call minimize of the optimizer, then create ModelAverage(…)"
        )

    step = minimize

    def _averaged(self, scope: Scope) -> dict[str, Tensor]:
        averages = {}
        for name, (sums, counts) in self._names.items():
            _steps(scope, counts[2], "ModelAverage")
            total = scope.peek(sums[0]) + scope.peek(sums[1]) + scope.peek(sums[2])
            averages[name] = total / (scope.peek(counts[0]).item() + scope.peek(counts[1]).item())
        return averages


def _averaged_variables(
    program: Program, what: str, wanted: Sequence[Variable | str] | None = None
) -> list[Variable]:
    """The parameters and running statistics to average."""
    if program.role is not None:
        raise ConfigError(
            f"{what}: the parameters of this program are on parameter servers; use collective training"
        )
    placeholder = program.recorder.placeholder_of
    if wanted is not None:
        return [program.check_owner(v) if isinstance(v, Variable) else program.var(v) for v in wanted]
    updates = program.graph.find_nodes(op="call_function", target=update_running_stats)
    statistics = {node for update in updates for node in update.args[:2]}
    parameters = [v for v in program.all_parameters() if v.dtype.is_floating_point]
    others = [v for v in program.persistables().values() if placeholder.get(v.value) in statistics]
    averaged = [v for v in (*parameters, *others) if not placeholder[v.value].meta.get(NOT_AVERAGED)]
    if not averaged:
        raise ConfigError(
            f"{what}: {program.name} has no parameters to average; call it after the net is built"
        )
    return averaged


def _new_state(
    program: Program, prefix: str, shape: Sequence[int], dtype: torch.dtype, value: float = 0.0
) -> str:
    name = names.generate_unused(prefix, program.vars)
    create_state(name, list(shape), dtype, Constant(value))
    return name


def _new_average(variable: Variable, suffix: str) -> str:
    """A new variable as large as this one; it differs between the ranks if this one does."""
    program = variable.program
    placeholder = program.recorder.placeholder_of
    name = _new_state(program, f"{variable.name}_{suffix}", variable.shape, variable.dtype)
    is_local = not isinstance(variable, Parameter) or placeholder[variable.value].meta.get("rank_local")
    if is_local:  # running statistics, and parameters under LocalSGD
        placeholder[program.var(name).value].meta["rank_local"] = True
    return name


def _steps(scope: Scope, name: str, what: str) -> int:
    """How many updates the averages have had; raises if there was none."""
    value = scope.values_of().get(name) if name else None
    if value is None or not value.item():
        raise ScopeError(f"{what}.apply: the averages were never updated; train at least one step before")
    return int(value.item())

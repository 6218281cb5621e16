"""TrainingInfo: what backward and the optimizers leave behind for the executor and the transpilers."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import torch

from argosy.engine.ir.periods import Period


class Scheduler(Protocol):
    """A learning-rate scheduler, as the executor and checkpoints use it."""

    steps_by_itself: bool
    """True: the executor calls `step` after each run."""

    def __call__(self) -> float: ...
    def step(self, epoch: int | None = None) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def set_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class ScheduledRate(NamedTuple):
    """The executor writes the scheduler's rate into the variable before each run."""

    variable: str
    scheduler: Scheduler


@dataclass(frozen=True)
class OptimizerCall:
    """One call of an optimizer's `apply_gradients`."""

    optimizer: object
    """The caller, an `argosy.optimizer.Optimizer`; the engine passes it on and never looks inside."""
    parameters: tuple[str, ...]
    gradients: tuple[str, ...]
    clipped: tuple[torch.Tensor, ...]
    """The gradients after clipping."""
    rate: str
    """The variable of the learning rate."""
    states: Mapping[tuple[str, str], str]
    """(parameter, slot) -> the variable, for all state that the optimizer has in the program."""


@dataclass(frozen=True)
class TrainingInfo:
    """How a program is trained. It is immutable: a change replaces it, and copies of the program share it."""

    optimizer_calls: tuple[OptimizerCall, ...] = ()
    """A transpiler builds the same updates on a parameter server from them."""
    schedulers: tuple[ScheduledRate, ...] = ()
    seeds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Gradient -> the variables loss@GRAD that its backward starts with; empty if the user gave others."""
    periods: tuple[Period, ...] = ()
    """When the nodes with `period` in their meta run."""

    def with_call(self, call: OptimizerCall) -> TrainingInfo:
        return replace(self, optimizer_calls=(*self.optimizer_calls, call))

    def with_scheduler(self, variable: str, scheduler: Scheduler) -> TrainingInfo:
        return replace(self, schedulers=(*self.schedulers, ScheduledRate(variable, scheduler)))

    def with_seeds(self, seeds: Mapping[str, tuple[str, ...]]) -> TrainingInfo:
        return replace(self, seeds={**self.seeds, **seeds})

    def with_period(self, period: Period) -> TrainingInfo:
        return replace(self, periods=(*self.periods, period))

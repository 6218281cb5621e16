"""What a checkpoint holds of a program in training, and how it gets back into the process.

    scope         parameters, accumulators, statistics      tensors
    schedulers    the epoch and rate of each                JSON
    generators    the program's own, if it has a seed       JSON

Ranks that train together have equal parameters and accumulators; what the update does not touch, such as the
statistics of a batch norm, may differ. In Reduce mode an accumulator is right on the owner of its parameter alone:
`gather` makes them equal.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from argosy.engine.collective import World
from argosy.engine.data.random_states import state_of, text_of
from argosy.engine.errors import ScopeError
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.effects import changed_inputs, storage
from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Parameter
from argosy.engine.passes.reduce_to_owner import owners
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Training:
    """A program, who runs it, and where its values are."""

    executor: Executor
    program: Program
    scope: Scope

    def shared(self) -> set[str]:
        """The variables that are equal on all ranks: parameters, and what the update changes."""
        updated = {
            storage(source)
            for node in self.program.graph.nodes
            if node.op == "call_function" and node.meta["role"] == "optimize"
            for source in changed_inputs(node)
        }
        return {
            name
            for name, variable in self.program.persistables().items()
            if isinstance(variable, Parameter) or storage(variable.node) in updated
        }

    def gather(self, world: World) -> None:
        """Give every rank the state that one of them has updated; all ranks call it together."""
        if world.size == 1:
            return
        for name, owner in owners(self.program).items():
            if not isinstance(self.program.vars[name], Parameter):  # the program itself broadcasts these
                value = self._value(name)
                with torch.no_grad():
                    value.copy_(_from_rank(owner, world, value, name))

    def tensors(self, rank: int) -> Tensors:
        """The values that this rank saves: rank 0 all of them, the others what may differ."""
        return {name: self._value(name) for name in self._own(rank)}

    def state(self) -> dict[str, Any]:
        """What is no tensor, as JSON can hold it."""
        drawn = self.executor.random_state(self.program)
        schedulers = {name: scheduler.state_dict() for name, scheduler in self.program.lr_schedulers}
        return {"generator": None if drawn is None else text_of(drawn), "schedulers": schedulers}

    def difference(self, rank: int, found: Tensors, state: Mapping[str, Any]) -> str:
        """Why what was saved does not fit this program; empty if it does."""
        variables = self.program.persistables()
        wanted = {name: kind(variables[name]) for name in self._own(rank)}
        saved = {name: kind(value) for name, value in found.items()}
        for name in [*wanted, *saved]:
            if wanted.get(name) != saved.get(name):
                return f"{name!r} is {saved.get(name, 'not there')}, in the program {wanted.get(name, 'not there')}"
        for name, scheduler in self.program.lr_schedulers:
            if name not in state["schedulers"]:
                return f"it has no state of the {type(scheduler).__name__} of {name!r}"
        return ""

    def restore(self, world: World, found: Tensors, state: Mapping[str, Any]) -> None:
        """Overwrite the scope's values in place; rank 0 gives the others what they share."""
        shared = self.shared()
        for name in self.program.persistables():
            value = self._value(name)
            if name in shared and world.size > 1:
                found[name] = _from_rank(0, world, found.get(name, value), name)
            with torch.no_grad():
                value.copy_(found[name])
        for name, scheduler in self.program.lr_schedulers:
            scheduler.set_state_dict(state["schedulers"][name])
        drawn = state["generator"]
        self.executor.set_random_state(self.program, None if drawn is None else state_of(drawn))

    def _own(self, rank: int) -> list[str]:
        shared = self.shared() if rank else set()
        return [name for name in self.program.persistables() if name not in shared]

    def _value(self, name: str) -> torch.Tensor:
        if self.scope.values_of().get(name) is None:
            raise ScopeError(
                f"variable {name!r} has no value in the scope; run the startup program before a checkpoint is "
                "saved or restored"
            )
        return self.scope.get(name)


def kind(value: Any) -> str:
    """float32[2, 3], of a tensor or a Variable."""
    return f"{dtype_name(value.dtype)}{list(value.shape)}"


def _from_rank(rank: int, world: World, value: torch.Tensor, name: str) -> torch.Tensor:
    """This rank's value on every rank; sent as bytes, which every backend can."""
    buffer = value.detach().to(world.device, copy=True, memory_format=torch.contiguous_format)
    if buffer.numel():
        world.group("util").broadcast(buffer.view(-1).view(torch.uint8), rank, name)
    return buffer

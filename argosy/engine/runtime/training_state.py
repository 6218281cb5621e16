"""The state of a training that a checkpoint saves and restores.

    scope         parameters, accumulators, statistics      tensors
    schedulers    the epoch and rate of each                JSON
    generators    of a program with a seed                  JSON

Ranks that train together have equal parameters and accumulators; variables that the optimizer does not update, such as
the statistics of a batch norm, may differ, and so do those with `rank_local` in their meta (DGC, LocalSGD). In Reduce
mode only the owner of a parameter has its valid accumulators: `gather` broadcasts them. Under strategy.sharding a rank
has only some rows of them: `gather` returns whole ones, which are saved under the same names, and `restore` slices
them, for any number of ranks.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from argosy.engine.collective import World
from argosy.engine.data.random_states import state_of, text_of
from argosy.engine.errors import CollectiveError, PeerLostError, ScopeError
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.effects import mutated_inputs, storage
from argosy.engine.ir.periods import Period, unfinished
from argosy.engine.ir.program import Program
from argosy.engine.ir.roles import TrainerRole
from argosy.engine.ir.variable import Parameter
from argosy.engine.passes.reduce_to_owner import owners
from argosy.engine.passes.shard_plan import Shard, shards
from argosy.engine.ps.trainer.trainer import Trainer
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.remote import begin
from argosy.engine.runtime.scope import Scope

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Training:
    """A program, its executor and its scope."""

    executor: Executor
    program: Program
    scope: Scope

    def servers(self) -> Trainer | None:
        """This worker's connection to its parameter servers; None if there are none."""
        role = self.program.role
        return begin(self.program, role, self.scope) if isinstance(role, TrainerRole) else None

    def take_from(self, servers: Trainer) -> None:
        """Pull the values of the dense variables from the servers."""
        servers.blocks.pull({variable.name: self._value(variable.name) for variable in servers.plan.dense})
        self.servers()

    def shared(self) -> set[str]:
        """The variables that are equal on all ranks: parameters, and what the optimizer mutates, unless `rank_local`.

        None in a job with parameter servers: each worker has its own copies.
        """
        if isinstance(self.program.role, TrainerRole):
            return set()
        updated = {
            storage(source)
            for node in self.program.graph.nodes
            if node.op == "call_function" and node.meta["role"] == "optimize"
            for source in mutated_inputs(node)
        }
        return (
            set(shards(self.program))
            | {
                name
                for name, variable in self.program.persistables().items()
                if isinstance(variable, Parameter) or storage(variable.node) in updated
            }
            - self.program.rank_local()
        )

    def unfinished(self) -> Period | None:
        """A period in whose other steps the ranks differ, if the last step was such a step."""
        if not self.program.rank_local():
            return None
        return unfinished(self.program.training.periods, lambda name: int(self._value(name).item()))

    def gather(self, world: World, asking: str) -> Tensors:
        """Gather the optimizer state of other ranks; if there is such state, all ranks must call it.

        In Reduce mode the scope has all values afterwards. Whole values of sharded state are returned, on rank 0.
        `asking` is the function that the user has called, for the error if a rank does not call it.
        """
        self._broadcast_owned(world, asking)
        sharded = {} if world.size == 1 else shards(self.program)
        if not sharded:
            return {}
        try:
            number = world.monitor.local.started.get("gather", 0) + 1
            world.all_gather_object(
                f"gather#{number} ({asking}, which all ranks call under strategy.sharding)"
            )
            wholes: Tensors = {}
            for name, shard in sharded.items():
                whole = _gather_shard(shard, world, self._value(name), name)
                wholes |= {name: whole} if world.rank == 0 else {}
            return wholes
        except PeerLostError:
            raise
        except CollectiveError as e:
            raise CollectiveError(
                f"{asking}: under strategy.sharding each rank has a shard of the optimizer state, and another rank has "
                f"not called it; call it on all ranks ({e})"
            ) from e

    def _broadcast_owned(self, world: World, asking: str) -> None:
        owned = {  # the program itself broadcasts parameters
            name: owner
            for name, owner in owners(self.program).items()
            if not isinstance(self.program.vars[name], Parameter)
        }
        if world.size == 1 or not owned:
            return
        try:
            number = world.monitor.local.started.get("gather", 0) + 1
            world.all_gather_object(
                f"gather#{number} ({asking}, which all ranks call under ReduceStrategy.Reduce)"
            )
            for name, owner in owned.items():
                value = self._value(name)
                with torch.no_grad():
                    value.copy_(_from_rank(owner, world, value, name))
        except PeerLostError:
            raise
        except CollectiveError as e:
            raise CollectiveError(
                f"{asking}: under ReduceStrategy.Reduce each rank has the optimizer state of the parameters that it "
                f"updates, {next(iter(owned))!r} is on rank {next(iter(owned.values()))}, and another rank has not "
                f"called it; call it on all ranks, or train with ReduceStrategy.AllReduce ({e})"
            ) from e

    def tensors(self, rank: int, wholes: Tensors | None = None) -> Tensors:
        """The values that this rank saves: rank 0 all of them, the others those that may differ.

        `wholes`: the result of `gather`.
        """
        values = {name: self._value(name) for name in self._saved_by(rank)}
        return values if wholes is None else values | wholes

    def state(self) -> dict[str, Any]:
        """The state that is not in tensors, as JSON values."""
        generator = self.executor.random_state(self.program)
        schedulers = {name: scheduler.state_dict() for name, scheduler in self.program.training.schedulers}
        alternatives = self.program.alternatives
        return {
            "generator": None if generator is None else text_of(generator),
            "schedulers": schedulers,
            **({} if alternatives is None else {"alternative": alternatives.state()}),
        }

    def difference(self, rank: int, tensors: Tensors, state: Mapping[str, Any]) -> str:
        """Why saved values do not fit this program; "" if they do."""
        variables, sharded = self.program.persistables(), shards(self.program)
        wanted = {
            name: kind(variables[name], sharded[name].shape if name in sharded else None)
            for name in self._saved_by(rank)
        }
        saved = {name: kind(value) for name, value in tensors.items()}
        for name in [*wanted, *saved]:
            if wanted.get(name) != saved.get(name):
                return (
                    f"{name!r} is {saved.get(name, 'missing')}, in the program {wanted.get(name, 'missing')}"
                )
        for name, scheduler in self.program.training.schedulers:
            if name not in state["schedulers"]:
                return f"it has no state of the {type(scheduler).__name__} of {name!r}"
        return ""

    def restore(self, world: World, tensors: Tensors, state: Mapping[str, Any]) -> None:
        """Overwrite the scope's values in place; rank 0 broadcasts the variables that are equal on all ranks."""
        shared, sharded = self.shared(), shards(self.program)
        for name in self.program.persistables():
            value, shard = self._value(name), sharded.get(name)
            if name in shared and world.size > 1:
                expected = value if shard is None else value.new_empty(shard.shape)
                tensors[name] = _from_rank(0, world, tensors.get(name, expected), name)
            whole = tensors.pop(name)
            self.scope.write(name, whole if shard is None else shard.of(whole, world.rank))
        for name, scheduler in self.program.training.schedulers:
            scheduler.set_state_dict(state["schedulers"][name])
        if self.program.alternatives is not None and "alternative" in state:
            self.program.alternatives.restore(state["alternative"])
        generator = state["generator"]
        self.executor.set_random_state(self.program, None if generator is None else state_of(generator))

    def _saved_by(self, rank: int) -> list[str]:
        shared = self.shared() if rank else set()
        return [name for name in self.program.persistables() if name not in shared]

    def _value(self, name: str) -> torch.Tensor:
        if self.scope.values_of().get(name) is None:
            raise ScopeError(
                f"variable {name!r} has no value in the scope; run the startup program before a checkpoint is "
                "saved or restored"
            )
        return self.scope.peek(name)


def kind(value: Any, shape: Sequence[int] | None = None) -> str:
    """float32[2, 3]: dtype and shape of a tensor or a Variable; a shape that is given replaces its own."""
    return f"{dtype_name(value.dtype)}{list(value.shape if shape is None else shape)}"


def _gather_shard(shard: Shard, world: World, value: torch.Tensor, name: str) -> torch.Tensor:
    """The whole value of a sharded variable."""
    whole = value.new_empty(shard.shape)
    for owner in shard.owners():
        rows = shard.of(whole, owner)
        rows.copy_(_from_rank(owner, world, value if world.rank == owner else rows, name))
    return whole


def _from_rank(rank: int, world: World, value: torch.Tensor, name: str) -> torch.Tensor:
    """Broadcast the value of `rank`; as bytes, because every backend supports them."""
    buffer = value.detach().to(world.device, copy=True, memory_format=torch.contiguous_format)
    if buffer.numel():
        world.group("util").broadcast(buffer.view(-1).view(torch.uint8), rank, name)
    return buffer

"""State that is divided between ranks: reject saves by a single rank that would be incomplete, slice what is loaded.

In Reduce mode each rank updates only some parameters, under strategy.sharding only some rows of them; with dgc each
rank has its own residuals.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable, Mapping
from typing import Any

from argosy.engine.collective import world
from argosy.engine.errors import ConfigError
from argosy.engine.ir.effects import mutated_inputs
from argosy.engine.ir.program import Program
from argosy.engine.ir.roles import TrainerRole
from argosy.engine.ir.variable import Parameter
from argosy.engine.ops.dgc import dgc_all_reduce
from argosy.engine.ops.sharding import reduce_scatter
from argosy.engine.passes.reduce_to_owner import is_divided, owners
from argosy.engine.passes.shard_plan import shards

_REMEDY = "call fleet.save_persistables(executor, dirname) or use fleet.Checkpoint, on all ranks"


def reject_divided(what: str, program: Program) -> None:
    """Raise if the program has only some of the updates: loaded elsewhere, it would train only those parameters."""
    if isinstance(program.role, TrainerRole):
        raise ConfigError(
            f"{what}: {program.name} is a trainer's program; its tables and optimizer state are on the parameter "
            "servers: use fleet.save_persistables or fleet.save_inference_model (fluid.io.save_persistables for a "
            "transpiled program)"
        )
    reject_local(what, program, program.persistables())
    if program.graph.find_nodes(op="call_function", target=reduce_scatter):
        raise ConfigError(
            f"{what}: {program.name} was built with strategy.sharding, so rank {world().rank} has the updates and the "
            f"optimizer state of some rows only; {_REMEDY}; program.clone(for_test=True) can be saved here"
        )
    if is_divided(program):
        raise ConfigError(
            f"{what}: {program.name} was built with ReduceStrategy.Reduce, so rank {world().rank} has the updates and "
            f"the optimizer state of some parameters only; {_REMEDY}; program.clone(for_test=True) can be saved here"
        )


def reject_stale(what: str, program: Program, names: Iterable[str]) -> None:
    """Raise if one of these is optimizer state that another rank updates, or that differs between the ranks."""
    names = list(names)
    reject_local(what, program, names)
    rank, owner_of, sharded = world().rank, owners(program), shards(program)
    for name in names:
        if name in sharded:
            raise ConfigError(
                f"{what}: {name!r} is optimizer state of which rank {rank} has a shard only (strategy.sharding); "
                f"{_REMEDY}; parameters can be saved here"
            )
        if owner_of.get(name, rank) != rank and not isinstance(program.vars[name], Parameter):
            raise ConfigError(
                f"{what}: {name!r} is optimizer state that rank {owner_of[name]} updates (ReduceStrategy.Reduce), so "
                f"rank {rank} has a stale value; {_REMEDY}; parameters can be saved here"
            )


def reject_local(what: str, program: Program, names: Iterable[str]) -> None:
    """Raise if one of these is optimizer state that always differs between the ranks: one rank cannot save it."""
    compressed = program.graph.find_nodes(op="call_function", target=dgc_all_reduce)
    local = {state for node in compressed for state in mutated_inputs(node)}
    node_of = {
        name: program.recorder.placeholder_of.get(v.value) for name, v in program.persistables().items()
    }
    for name in names:
        if node_of.get(name) in local:
            raise ConfigError(
                f"{what}: {name!r} is state of strategy.dgc, which differs between the ranks; use fleet.Checkpoint, "
                "where every rank saves its own; save_inference_model saves the parameters"
            )


def rows_of_this_rank(program: Program, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with the rows that this rank stores of sharded state (strategy.sharding); for loading."""
    sharded, rank = shards(program), world().rank
    return {
        name: sharded[name].of(value, rank)
        if name in sharded and tuple(value.shape) == sharded[name].shape
        else value
        for name, value in values.items()
    }

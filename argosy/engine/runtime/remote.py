"""The connection of a trainer's program to its parameter servers, before and after a run."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Mapping
from typing import Any

from argosy.engine.data.lod_tensor import LoDTensor
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program
from argosy.engine.ir.roles import TrainerRole
from argosy.engine.log import logger
from argosy.engine.ps.trainer import trainer
from argosy.engine.ps.trainer.trainer import Trainer
from argosy.engine.runtime.scope import Scope


def begin(program: Program, role: TrainerRole, scope: Scope) -> Trainer:
    """Connect at the first run. Under geo, changes are relative to the initial values."""
    plan = role.plan
    if plan.initialised_by_trainer and not trainer.is_connected():
        raise ConfigError(
            f"{program.name} uses parameter servers, and this worker is not connected to them; run it between "
            "fleet.init_worker() and fleet.stop_worker()"
        )
    connected = trainer.connect(plan, role.number)
    connected.begin_step()
    if plan.mode == "geo" and not connected.geo.has_begun:
        values = {v.name: scope.get(v.name) for v in plan.dense if v.name in scope}
        if len(values) == len(plan.dense):
            connected.geo.begin(values)
    return connected


def has_started(startup: Program, scope: Scope) -> bool:
    """True if `fleet.init_worker` has connected this worker, and the startup program's variables have values."""
    values = scope.values_of()
    started = trainer.is_connected() and all(values.get(name) is not None for name in startup.persistables())
    if started:
        logger.info("%s is not run: fleet.init_worker has initialized its variables", startup.name)
    return started


def step_schedulers(program: Program, connected: Trainer | None) -> None:
    """Step the schedulers that count runs; in async mode they count the runs of all trainers."""
    for _, scheduler in program.training.schedulers:
        if not scheduler.steps_by_itself:
            continue
        if connected is not None and connected.plan.mode == "async" and connected.connection.global_step:
            scheduler.step(connected.connection.global_step)
        else:
            scheduler.step()


def prefetch_of(program: Program) -> Callable[[Mapping[str, Any]], None] | None:
    """A function of the next feed that pulls the rows which it will look up; None if there are none."""
    lookups = program.role.fed_lookups if isinstance(program.role, TrainerRole) else ()
    if not lookups:
        return None

    def prefetch(feed: Mapping[str, Any]) -> None:
        for lookup in lookups:
            ids = [feed[name] for name in lookup.feeds]
            rows = [i.rows if isinstance(i, LoDTensor) else i for i in ids]
            trainer.current().lookups.prefetch(lookup.table, rows)

    return prefetch


def end_thread() -> None:
    """Send the gradients that an ending training thread has accumulated for the servers."""
    if trainer.is_connected():
        trainer.current().send_rest()


def leave() -> None:
    """Disconnect from the servers, if connected."""
    trainer.disconnect()

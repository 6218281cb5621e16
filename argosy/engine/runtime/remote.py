"""What comes before and after a run of a trainer's program: its connection to the parameter servers."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program
from argosy.engine.ps.trainer import trainer
from argosy.engine.ps.trainer.trainer import Trainer
from argosy.engine.runtime.scope import Scope


def begin(program: Program, scope: Scope) -> Trainer:
    """Connect, if that has not been done. Under geo, changes count from the first values on."""
    plan, number = program.remote
    if plan.initialised_by_trainer and not trainer.is_connected():
        raise ConfigError(
            f"{program.name} talks to parameter servers, and this worker is not connected to them; run it between "
            "fleet.init_worker() and fleet.stop_worker()"
        )
    connected = trainer.connect(plan, number)
    connected.begin_step()
    if plan.mode == "geo" and not connected.geo.has_begun:
        values = {v.name: scope.get(v.name) for v in plan.dense if v.name in scope}
        if len(values) == len(plan.dense):
            connected.geo.begin(values)
    return connected


def step_schedulers(program: Program, connected: Trainer | None) -> None:
    """Schedules that count runs count one more; in async mode the runs of all trainers count."""
    for _, scheduler in program.lr_schedulers:
        if not getattr(scheduler, "steps_by_itself", False):
            continue
        if connected is not None and connected.plan.mode == "async" and connected.connection.global_step:
            scheduler.step(connected.connection.global_step)
        else:
            scheduler.step()


def end_thread() -> None:
    """A thread that has trained ends: what it has added up for the servers is sent."""
    if trainer.is_connected():
        trainer.current().send_rest()


def leave() -> None:
    """Tell the servers that this process is done, if it knows some."""
    trainer.disconnect()

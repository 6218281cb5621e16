"""A trainer of a job with parameter servers: the interface of its program's nodes.

Blocks    dense variables: gradients out, values back        ─┐
Lookups   rows of tables, the next batch's ahead  ─▶ TableClient     ├─▶ Connection ─▶ the servers
Geo       what has changed, every k steps                     │
Group     collectives of the trainers                                 ─┘
"""

# SPDX-License-Identifier: Apache-2.0
import atexit
import sys

from torch import Tensor

from argosy.engine import process_effects
from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.log import logger
from argosy.engine.ps import messages
from argosy.engine.ps.job_plan import JobPlan
from argosy.engine.ps.rpc.settings import RpcSettings
from argosy.engine.ps.trainer.blocks import Blocks
from argosy.engine.ps.trainer.connection import Connection
from argosy.engine.ps.trainer.geo import Geo
from argosy.engine.ps.trainer.lookups import Lookups
from argosy.engine.ps.trainer.table_client import TableClient
from argosy.engine.ps.trainer.trainer_group import TrainerGroup


class Trainer:
    """This process as a trainer of one job."""

    def __init__(self, plan: JobPlan, number: int, settings: RpcSettings | None = None) -> None:
        self.plan, self.number = plan, number
        self.connection = Connection(plan, number, settings or RpcSettings.from_env())
        self.blocks = Blocks(self.connection)
        self.rows = TableClient(self.connection)
        self.geo = Geo(self.connection, self.blocks, self.rows)
        self.lookups = Lookups(self.connection, self.rows, self.geo)
        self.group = TrainerGroup(self.connection)
        self._loads = 0

    def begin_step(self) -> None:
        """Called before each run: if an error has interrupted the last one, its step is restarted."""
        if self.blocks.is_step_incomplete:
            self.blocks.discard_step()
            if self.plan.is_synchronous:
                self.connection.hello()

    def shared_init(self) -> dict[str, Tensor]:
        """Initial values of variables that every trainer has for itself."""
        reply = self.connection.start(0, messages.SharedInit()).wait("the initial values")
        return {name: t.clone() for name, t in zip(reply.meta["names"], reply.tensors, strict=True)}

    def save_tables(self, directory: str, save: str) -> dict[str, int]:
        """Let each server save its shards of the tables; returns the files with their checksums."""
        replies = self.connection.all(messages.Save(directory, save), f"saving into {directory}")
        return {name: number for reply in replies for name, number in reply["files"].items()}

    def commit_save(self, directory: str, save: str) -> None:
        """Commit a save: the servers remove the files of earlier ones."""
        self.connection.all(messages.CommitSave(directory, save), f"removing older files of {directory}")

    def load(self, path: str) -> None:
        """Let the servers load a saved model; all trainers call it together, between steps."""
        self._loads += 1
        if self.number == 0:
            self.connection.all(messages.Load(path, self._loads), f"loading {path}")
        self.group.barrier("loaded")
        self.geo.reset()

    def send_rest(self) -> None:
        """async: push the sums of this thread; returns when they are acknowledged."""
        self.lookups.send_rest()
        self.blocks.send_rest()
        self.connection.wait_acked()

    def leave(self) -> None:
        """Leave the job, and close the connections."""
        try:
            if self.plan.is_synchronous:
                self.blocks.discard_step()  # it will not be completed
            else:
                self.send_rest()
            self.connection.all(messages.Goodbye(), "leaving")
        finally:
            self.close()

    def close(self) -> None:
        self.connection.client.close()


_current: Trainer | None = None


def current() -> Trainer:
    """The trainer that this process is."""
    if _current is None:
        raise ProgramError(
            "this program uses parameter servers, and this process has no connection to them; run it with "
            "Executor.run, after fleet.init_worker() in a fleet job"
        )
    return _current


def is_connected() -> bool:
    return _current is not None


def connect(plan: JobPlan, number: int) -> Trainer:
    """The trainer for this plan; connects if there is none."""
    global _current  # noqa: PLW0603  (a process is one trainer)
    if _current is not None:
        if (_current.plan, _current.number) == (plan, number):
            return _current
        if _current.plan.endpoints == plan.endpoints:
            raise ConfigError(
                f"this process is trainer {_current.number} of another program at {', '.join(plan.endpoints)}; a job "
                "trains one program: leave the servers first (exe.close(), fleet.stop_worker())"
            )
        _current.leave()
    _current = Trainer(plan, number)
    process_effects.install("trainer-at-exit", _warn_at_exit)
    return _current


def disconnect() -> None:
    """Leave the servers, if there is a connection."""
    global _current
    if _current is not None:
        leaving, _current = _current, None
        leaving.leave()
        process_effects.undo("trainer-at-exit")


def _warn_at_exit() -> process_effects.Undo:
    atexit.register(_warn_if_connected)
    return lambda: atexit.unregister(_warn_if_connected)


def _warn_if_connected() -> None:
    """At exit: warn that the trainer has not left the servers, unless an exception ended the process."""
    if _current is not None and not hasattr(sys, "last_type"):
        lost = " its changes since the last synchronization are lost;" if _current.plan.mode == "geo" else ""
        logger.warning(
            "trainer %d exits and has not left the servers:%s call fleet.stop_worker(), or exe.close() in a transpiled "
            "job, when it is done",
            *(_current.number, lost),
        )

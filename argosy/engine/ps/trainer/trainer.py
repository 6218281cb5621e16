"""A trainer of a job with parameter servers: what the nodes of its program talk to.

Blocks    dense variables: gradients out, values back        ─┐
Lookups   rows of tables, the next batch's ahead  ─▶ Rows     ├─▶ Connection ─▶ the servers
Geo       what has changed, every k steps                     │
Group     trainers that meet                                 ─┘
"""

# SPDX-License-Identifier: Apache-2.0
import atexit
import sys

from torch import Tensor

from argosy.engine.errors import ConfigError, ProgramError
from argosy.engine.log import logger
from argosy.engine.ps import messages
from argosy.engine.ps.plan import Plan
from argosy.engine.ps.rpc.settings import Settings
from argosy.engine.ps.trainer.blocks import Blocks
from argosy.engine.ps.trainer.connection import Connection
from argosy.engine.ps.trainer.geo import Geo
from argosy.engine.ps.trainer.group import TrainerGroup
from argosy.engine.ps.trainer.lookups import Lookups
from argosy.engine.ps.trainer.rows import Rows


class Trainer:
    """This process among the servers of one job."""

    def __init__(self, plan: Plan, number: int, settings: Settings | None = None) -> None:
        self.plan, self.number = plan, number
        self.connection = Connection(plan, number, settings or Settings.from_env())
        self.blocks = Blocks(self.connection)
        self.rows = Rows(self.connection)
        self.geo = Geo(self.connection, self.blocks, self.rows)
        self.lookups = Lookups(self.connection, self.rows, self.geo)
        self.group = TrainerGroup(self.connection)

    def begin_step(self) -> None:
        """Before each run: if an error has broken the last one off, its step is begun anew."""
        if self.blocks.is_amid_step:
            self.blocks.forget_step()
            if self.plan.is_in_step:
                self.connection.greet()

    def kept(self) -> dict[str, Tensor]:
        """What all trainers begin with, besides what the servers train."""
        answer = self.connection.start(0, messages.Kept()).wait("the first values")
        return {name: t.clone() for name, t in zip(answer.meta["names"], answer.tensors, strict=True)}

    def save_tables(self, directory: str) -> None:
        """Let each server write its part of the tables."""
        self.connection.all(messages.Save(directory), f"saving into {directory}")

    def send_rest(self) -> None:
        """async: send what this thread has added up; returns when it is applied."""
        self.lookups.send_rest()
        self.blocks.send_rest()
        self.connection.settle()

    def leave(self) -> None:
        """Tell the servers that this trainer is done, and close."""
        try:
            if self.plan.is_in_step:
                self.blocks.forget_step()  # nobody will complete it
            else:
                self.send_rest()
            self.connection.all(messages.Leave(), "leaving")
        finally:
            self.close()

    def close(self) -> None:
        self.connection.client.close()


_current: Trainer | None = None


def current() -> Trainer:
    """The trainer that this process is."""
    if _current is None:
        raise ProgramError(
            "this program talks to parameter servers, and this process has no connection to them; run it with "
            "Executor.run, after fleet.init_worker() in a fleet job"
        )
    return _current


def is_connected() -> bool:
    return _current is not None


def connect(plan: Plan, number: int) -> Trainer:
    """The connection for this plan, made if it is not there yet."""
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
    atexit.unregister(_warn_of_forgotten)
    atexit.register(_warn_of_forgotten)
    return _current


def disconnect() -> None:
    """Leave the servers, if there is a connection."""
    global _current
    if _current is not None:
        leaving, _current = _current, None
        leaving.leave()


def _warn_of_forgotten() -> None:
    """At the end of the process: the servers have not been told; an error that ended it has said enough."""
    if _current is not None and not hasattr(sys, "last_type"):
        lost = " what it has learnt since the last exchange is lost;" if _current.plan.mode == "geo" else ""
        logger.warning(
            "trainer %d ends and has not left the servers:%s call fleet.stop_worker(), or exe.close() in a transpiled "
            "job, when it is done",
            *(_current.number, lost),
        )

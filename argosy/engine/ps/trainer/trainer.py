"""A trainer of a job with parameter servers: the interface of its program's nodes.

Blocks         dense variables: gradients out, values back                       ─┐
Lookups        rows of tables, the next batch's prefetched    ─▶ TableClient      ├─▶ TrainerConnection ─▶ servers
Geo            deltas, synchronized every k steps                                 │
TrainerGroup   collectives of the trainers, for fleet.util                        ─┘
"""

# SPDX-License-Identifier: Apache-2.0
import atexit
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import torch
from torch import Tensor

from argosy.engine import process_effects
from argosy.engine.errors import ArgosyError, ConfigError, ProgramError
from argosy.engine.log import logger
from argosy.engine.ps.protocol import messages
from argosy.engine.ps.protocol.job_plan import JobPlan
from argosy.engine.ps.rpc.client import PendingReply, Reply
from argosy.engine.ps.rpc.sockets import RpcSettings
from argosy.engine.ps.trainer.connection import Tensors, TrainerConnection
from argosy.engine.ps.trainer.dense import Blocks
from argosy.engine.ps.trainer.geo import Geo
from argosy.engine.ps.trainer.sparse import Lookups, TableClient

_REDUCERS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum": torch.sum,
    "max": torch.amax,
    "min": torch.amin,
}


class TrainerGroup:
    """Collectives of all live trainers: they do not wait for trainers that were dropped."""

    def __init__(self, connection: TrainerConnection) -> None:
        self._connection = connection
        self._numbers: Counter[str] = Counter()

    @property
    def size(self) -> int:
        return self._connection.plan.trainers

    @property
    def rank(self) -> int:
        return self._connection.number

    def all_gather_bytes(self, data: bytes, what: str) -> list[bytes]:
        """The bytes of every trainer, in order."""
        return [part[0].numpy().tobytes() for part in self._all_gather(what, [_tensor(data)])]

    def all_reduce(self, tensor: Tensor, mode: str = "sum", what: str = "") -> Tensor:
        """The sum, max or min over the trainers, added in the order of their numbers."""
        return _REDUCERS[mode](torch.stack([part[0] for part in self._all_gather(what, [tensor])]), 0)

    def barrier(self, what: str) -> None:
        """Return when every trainer has joined."""
        self._all_gather(what)

    def all_to_all(self, parts: Sequence[bytes]) -> list[bytes]:
        """Send part i to trainer i; returns the parts for this trainer, by sender. All trainers call it together."""
        number, servers = self._next_number("all_to_all"), len(self._connection.servers)
        sends = [
            self._connection.start(to % servers, messages.Send(number, to), [_tensor(part)])
            for to, part in enumerate(parts)
        ]
        with self.excluded():
            recv = self._connection.start(self.rank % servers, messages.Recv(number))
            received = recv.wait(f"all-to-all {number}")
            self._join("all_to_all done", self._next_number("all_to_all done"))
        for send in sends:  # all trainers have received their data
            send.cancel()
        return [tensor.numpy().tobytes() for tensor in received.tensors]

    def _all_gather(self, name: str, tensors: Tensors = ()) -> list[list[Tensor]]:
        """The tensors of every trainer, in order. All trainers call it, in the same order."""
        number = self._next_number(name)
        reply = self._result(name, number) if self._is_synchronous else None
        if reply is None:
            with self.excluded():
                reply = self._join(name, number, tensors)
        else:
            self._join("back", self._next_number("back"))
        parts = iter(reply.tensors)
        return [[next(parts).clone() for _ in range(count)] for count in reply.meta["counts"]]

    @property
    def _is_synchronous(self) -> bool:
        return self._connection.plan.is_synchronous and self.size > 1

    def _result(self, name: str, number: int) -> Reply | None:
        """The result of an all-gather that a previous incarnation of this trainer has joined; None if it is pending.

        Excluding this trainer for a completed all-gather would let the others do steps without it, on some servers.
        """
        reply = self._connection.start(0, messages.AllGatherResult(name, number)).wait(name)
        return None if reply.meta["counts"] is None else reply

    def _join(self, name: str, number: int, tensors: Tensors = ()) -> Reply:
        message = messages.AllGather(name, number)
        return self._connection.start(0, message, [t.contiguous() for t in tensors]).wait(name)

    def _next_number(self, name: str) -> int:
        self._numbers[name] += 1
        return self._numbers[name] - 1

    @contextmanager
    def excluded(self) -> Iterator[None]:
        """Inside, steps do not wait for this trainer: trainers with more batches continue."""
        if not self._is_synchronous:
            yield
            return
        pending = [self._connection.start(server, messages.Pause()) for server in self._connection.servers]
        try:
            yield
        except BaseException:
            with suppress(ArgosyError):  # after any error steps must wait for this trainer again
                self._return(pending)
            raise
        self._return(pending)
        # The first trainer that is back must not do a step while the others are still excluded.
        self._join("back", self._next_number("back"))

    def _return(self, pending: Sequence[PendingReply]) -> None:
        """Register again: steps wait for this trainer again.

        The servers have replied to the hello, so the pauses are over. Their replies are not awaited: a server that was
        restarted after its hello would take a repeated pause for a new one.
        """
        self._connection.hello()
        for reply in pending:
            reply.cancel()


def _tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data) or bytearray(1), dtype=torch.uint8)[: len(data)]


class Trainer:
    """This process as a trainer of one job."""

    def __init__(self, plan: JobPlan, number: int, settings: RpcSettings | None = None) -> None:
        self.plan, self.number = plan, number
        self.connection = TrainerConnection(plan, number, settings or RpcSettings.from_env())
        self.blocks = Blocks(self.connection)
        self.rows = TableClient(self.connection)
        self.geo = Geo(self.connection, self.blocks, self.rows)
        self.lookups = Lookups(self.connection, self.rows, self.geo if plan.mode == "geo" else None)
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

    def leave(self, is_preempted: bool = False) -> None:
        """Leave the job, and close the connections. `is_preempted`: it has saved a checkpoint, to be resumed."""
        try:
            if self.plan.is_synchronous:
                self.blocks.discard_step()  # it will not be completed
            else:
                self.send_rest()
            self.connection.all(messages.Goodbye(is_preempted), "leaving")
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


def disconnect(is_preempted: bool = False) -> None:
    """Leave the servers, if there is a connection. `is_preempted`: see `Trainer.leave`."""
    global _current
    if _current is not None:
        leaving, _current = _current, None
        leaving.leave(is_preempted)
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

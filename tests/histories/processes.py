"""The processes of an attacked job: servers and trainers, each on a host, that can be killed and started again.

To import torch takes seconds, so multiprocessing's fork server imports it once and forks all of them. A trainer
appends what it does and sees to a file, record by record: what is in the file survives its kill.

    trainer0.0   begin 0, ack 0, pull, begin 2, ack 2, pull, begin 4 ✗ killed
    trainer0.1   begin 6, …
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import multiprocessing as mp
import os
import pickle
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from argosy.engine.ps.protocol.job_plan import JobPlan
from argosy.engine.ps.rpc.sockets import RpcSettings
from argosy.engine.ps.server import snapshots
from argosy.engine.ps.server.service import Service
from argosy.engine.ps.trainer.trainer import Trainer
from tests.histories.checker import Array, History, Pull, Push
from tests.histories.hosts import Hosts
from tests.histories.revealing import RevealingUpdater, gradient_of

SETTINGS = RpcSettings(
    send_threads=4, get_threads=4, prefetch_threads=2,
    deadline_s=60.0, heartbeat_s=0.2, retry_s=0.3, token="secret",
)  # fmt: skip
_LOG_BYTES = 1 << 20
"""A snapshot is due when the log has so many: kills hit snapshots, too."""
_FORKS = mp.get_context("forkserver")
_GRACE_STEPS = 20


@dataclass(frozen=True)
class Job:
    """What all processes of a round know."""

    plan: JobPlan
    size: int
    """The number of coordinates: as many pushes can be distinguished."""
    folder: Path
    durability: str = "log"

    @property
    def servers(self) -> int:
        return len(self.plan.endpoints)


class Progress:
    """How far the trainers are: numbers in a file that all processes map, and that a kill leaves as they are."""

    def __init__(self, job: Job) -> None:
        path, shape = job.folder / "progress", (1 + job.plan.trainers, 3)
        if not path.exists():
            np.zeros(shape, np.int64).tofile(path)
        self._cells = np.memmap(path, np.int64, "r+", shape=shape)
        self.indices, self.begun, self.done = self._cells[1:].T
        """By trainer: how many indices it has used, the step it has begun last, how many of its steps are done."""

    @property
    def last(self) -> int:
        """The step after which the trainers end; 0: they do not end."""
        return int(self._cells[0, 0])

    def end(self) -> None:
        """Let the trainers end, all after the same step."""
        self._cells[0, 0] = int(self.begun.max()) + _GRACE_STEPS


class Member:
    """A process on a host, and its successors."""

    def __init__(self, hosts: Hosts, host: int, log: Path, function: Callable[..., None], *more: Any) -> None:
        """`function` is called with `more` and the number of the incarnation."""
        self._host, self.log, self._function, self._more = hosts.names[host], log, function, more
        self.incarnation = 0
        self.start()

    def start(self) -> None:
        arguments = (self._host, self.log, self._function, *self._more, self.incarnation)
        self.process = _FORKS.Process(target=_run, args=arguments, daemon=True)
        self.process.start()
        self.incarnation += 1

    @property
    def name(self) -> str:
        return self.log.suffix[1:]

    @contextlib.contextmanager
    def killed(self) -> Iterator[None]:
        """kill -9, and a successor at the end."""
        self.kill()
        try:
            yield
        finally:
            self.start()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """SIGSTOP, and SIGCONT at the end."""
        process = self.process
        os.kill(process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            if process.exitcode is None:
                os.kill(process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


def begin_forks() -> None:
    """To be called once, before the first process."""
    os.environ["OMP_NUM_THREADS"] = "1"  # a fork beside threads may copy a lock that is never released
    os.environ.setdefault("ARGOSY_LOG", "warning")
    _FORKS.set_forkserver_preload([__name__])


def _run(host: str | None, log: Path, function: Callable[..., None], *arguments: Any) -> None:
    """In the new process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started it
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
    if host is not None:
        from lab.namespaces import setns

        setns(host)  # before this process starts threads: each of them has a namespace
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    function(*arguments)


def _end_with_parent() -> None:
    """End this process if the one that has started it was killed."""
    parent = mp.parent_process()
    assert parent is not None, "multiprocessing has started this process"
    parent.join()
    os._exit(1)


# --- servers ------------------------------------------------------------------------------------------


def serve(job: Job, number: int, incarnation: int) -> None:
    """A server, until it is killed."""
    snapshots._LOG_BYTES = _LOG_BYTES
    updater = RevealingUpdater(f"w{number}", job.size, adds=job.plan.mode == "geo")
    place = job.folder / f"state{number}"
    Service(job.plan, number, updater, SETTINGS, place, stays=True, durability=job.durability).serve()


# --- trainers -----------------------------------------------------------------------------------------


class Recorder:
    """Appends records to a file, each with one write."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)  # until the process ends

    def __call__(self, *record: Any) -> None:
        os.write(self._fd, pickle.dumps(record))

    def pull(self, server: int, began: float, value: Tensor, order: int | None, step: int | None) -> None:
        self("pull", server, began, time.monotonic(), _compact(value), order, step)

    def rows(self, server: int, began: float, value: Tensor) -> None:
        self("rows", server, began, time.monotonic(), _compact(value))


def _compact(value: Tensor) -> Array:
    """The same values in a smaller dtype, where they are what they should be."""
    small = value.to(torch.uint8)
    return (small if torch.equal(small.to(value.dtype), value) else value.clone()).numpy()


def train(job: Job, number: int, incarnation: int) -> None:
    """A trainer, until all trainers are to end."""
    record = Recorder(job.folder / f"trainer{number}.{incarnation}")
    try:
        trainer = Trainer(job.plan, number, SETTINGS)
        steps = _Steps(job, trainer, record)
        while steps.step():
            pass
        trainer.leave()
    except BaseException:
        record("error", traceback.format_exc())
        raise


def read(job: Job, number: int, incarnation: int) -> None:
    """Read everything, as a trainer of this number."""
    record = Recorder(job.folder / f"reader.{incarnation}")
    trainer = Trainer(job.plan, number, SETTINGS)
    steps = _Steps(job, trainer, record)
    steps.pull()
    steps.pull_rows()
    trainer.leave()


class _Steps:
    """The steps of one trainer."""

    def __init__(self, job: Job, trainer: Trainer, record: Recorder) -> None:
        self._job, self._trainer, self._record = job, trainer, record
        self._mode, self._number = job.plan.mode, trainer.number
        self._progress, self._random = Progress(job), random.Random()

    def step(self) -> bool:
        """One push of an index, and one pull of everything; False if it is time to end."""
        step, progress = self._next_step, self._progress
        index = self._next_index(step)
        while index >= self._job.size and not progress.last:
            time.sleep(0.01)  # all indices are used up
        if 0 < progress.last < step or index >= self._job.size:
            return False
        progress.begun[self._number] = step
        self._record(
            "begin", self._number, index, step if self._trainer.plan.is_synchronous else 0, time.monotonic()
        )
        if self._mode == "geo":
            self._exchange(index)
        else:
            self._push_and_pull(index, step)
        progress.done[self._number] += 1
        if self._random.random() < 0.3:
            self.pull()
        if self._random.random() < 0.1:
            self.pull_rows()
        if not self._trainer.plan.is_synchronous:
            time.sleep(0.02 * self._random.random())  # so that the indices last
        return True

    @property
    def _next_step(self) -> int:
        if self._trainer.plan.is_synchronous:
            return self._trainer.connection.next_step
        return int(self._progress.done[self._number]) + 1

    def _next_index(self, step: int) -> int:
        """sync: a step that is done again has the same gradients. Else each push has an index of its own."""
        used = step - 1 if self._mode == "sync" else int(self._progress.indices[self._number])
        self._progress.indices[self._number] = used + 1
        return used * self._job.plan.trainers + self._number

    def _push_and_pull(self, index: int, step: int) -> None:
        trainer, size = self._trainer, self._job.size
        began = time.monotonic()
        gradient = gradient_of(index, size, self._job.plan.trainers if self._mode == "sync" else 1.0)
        values = self._empty()
        for server, name in enumerate(values):
            trainer.blocks.send(gradient, 1.0, [name], [size + 1], [server])
        trainer.rows.push("table", *self._rows(index, -float(gradient[index])), 1.0)
        trainer.blocks.end_step()
        if self._mode == "async":
            trainer.connection.wait_acked()
            self._record("ack", index, time.monotonic())
            began = time.monotonic()
        for server, (name, value) in enumerate(values.items()):
            trainer.blocks.recv(value, [name], [size + 1], [server])
        trainer.blocks.fetch()
        self._record("ack", index, time.monotonic())
        self._note(began, values, step if trainer.plan.is_synchronous else None)

    def _exchange(self, index: int) -> None:
        """geo: send changes, and read what all have changed."""
        trainer, change = self._trainer, gradient_of(index, self._job.size)
        trainer.blocks.push_deltas({dense.name: change for dense in trainer.plan.dense})
        trainer.rows.push("table", *self._rows(index, 1.0), 1.0)
        trainer.connection.wait_acked()
        self._record("ack", index, time.monotonic())
        self.pull()

    def pull(self) -> None:
        """Read the vectors."""
        began, values = time.monotonic(), self._empty()
        self._trainer.blocks.pull(values)
        self._note(began, values, None)

    def pull_rows(self) -> None:
        """Read the rows of all indices, of each server."""
        began, servers = time.monotonic(), self._job.servers
        ids = torch.arange(self._job.size * servers)
        after = self._trainer.connection.next_step - 1 if self._mode == "sync" else 0
        rows = self._trainer.rows.start_pull("table", ids, after, create=False).wait()[:, 0]
        for server, part in enumerate(rows.view(-1, servers).T):
            self._record.rows(server, began, part)

    def _empty(self) -> dict[str, Tensor]:
        return {dense.name: torch.empty(dense.shape, dtype=torch.float64) for dense in self._job.plan.dense}

    def _rows(self, index: int, gradient: float) -> tuple[Tensor, Tensor]:
        """A row of its own on each server."""
        servers = self._job.servers
        return index * servers + torch.arange(servers), torch.full((servers, 1), gradient)

    def _note(self, began: float, values: dict[str, Tensor], step: int | None) -> None:
        for server, value in enumerate(values.values()):
            order = None if self._mode == "geo" else int(value[-1])
            self._record.pull(server, began, value[:-1], order, step)


# --- what they have recorded --------------------------------------------------------------------------


@dataclass
class Recorded:
    """What all trainers of a round have done and seen; by server."""

    vectors: list[History]
    rows: list[History]
    pushes: list[Push]
    errors: list[str]


def recorded(job: Job) -> Recorded:
    """Read what the trainers have appended to their files."""
    servers = range(job.servers)
    vectors, rows = [History() for _ in servers], [History() for _ in servers]
    pushes: dict[int, Push] = {}
    errors = []
    for path in sorted([*job.folder.glob("trainer*.*"), *job.folder.glob("reader.*")]):
        for kind, *values in _records(path):
            match kind:
                case "begin":
                    trainer, index, step, began = values
                    # sync: a step that was done again is the same push.
                    push = pushes.setdefault(index, Push(index, began, trainer=trainer, step=step))
                    push.began = min(push.began, began)
                case "ack":
                    index, ended = values
                    pushes[index].ended = min(pushes[index].ended, ended)
                case "pull":
                    server, *pull = values
                    vectors[server].pulls.append(Pull(*pull))
                case "rows":
                    server, *pull = values
                    rows[server].pulls.append(Pull(*pull))
                case "error":
                    errors.append(f"{path.name}: {values[0]}")
    for history in (*vectors, *rows):
        history.pushes = list(pushes.values())
    return Recorded(vectors, rows, list(pushes.values()), errors)


def _records(path: Path) -> Iterator[tuple[Any, ...]]:
    """The records of a file; a kill may have cut the last one short."""
    with open(path, "rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except (EOFError, pickle.UnpicklingError):
                return

"""One simulated job: real servers and trainers, faults drawn from a seed, and the check of what the trainers have seen.

Every trainer pushes an index of its own in each step: 1 at that coordinate of a vector on each server and in a row of a
table, and the register that shows the order. See `tests/histories/checker.py`.
"""

# SPDX-License-Identifier: Apache-2.0
import logging
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import CorruptFileError
from argosy.engine.log import logger
from argosy.engine.ps.protocol.job_plan import Dense, JobPlan
from argosy.engine.ps.protocol.slicing import VariableBlock
from argosy.engine.ps.rpc.sockets import RpcSettings
from argosy.engine.ps.server.service import Service
from argosy.engine.ps.table.table_spec import RowInit, RowOptimizer, TableSpec
from argosy.engine.ps.trainer.trainer import Trainer
from tests.histories import checker
from tests.histories.checker import PUSHES_OF_ROW, History, Pull, Push
from tests.histories.revealing import RevealingUpdater
from tests.simulation.disk import SimulatedDisk
from tests.simulation.install import installed
from tests.simulation.network import Faults, Network
from tests.simulation.scheduler import Process, Stuck, World

SETTINGS = RpcSettings(
    send_threads=3,
    get_threads=2,
    prefetch_threads=2,
    deadline_s=100.0,
    heartbeat_timeout_s=10.0,
    token="secret",
)
_BARRIER_EVERY, _FIRST_BARRIER = 5, 3
"""Trainers do an all-reduce before step 3, 8, …"""
_PATIENCE_S = 900.0
_EXPECTED = re.compile(
    "the log cannot be written|could not be (?:written|logged)|cannot start from the state"
)
"""What a server logs as an error when its disk is full, or its files are corrupt."""
_ORDER_ROWS = 1_000_000
"""The first row of the table that shows the order of pushes."""


@dataclass(frozen=True)
class Scenario:
    """The parameters of a simulated job, drawn from its seed."""

    mode: str
    servers: int
    trainers: int
    steps: int
    k_steps: int
    durability: str
    is_initialised_by_trainer: bool
    log_bytes: int
    """A snapshot is due when the log has so many."""
    faults: Faults
    kinds: tuple[str, ...]
    """What happens to processes and disks, one after another."""
    every_s: float
    disk_s: float
    """How long an operation of a disk takes, at most."""
    tick_s: float
    """How often a server looks whether a snapshot is due."""
    preempts: float
    """The probability that a thread is interrupted where it takes a lock."""

    @property
    def size(self) -> int:
        """The number of coordinates: an index for each step, also for those that a restarted trainer does again."""
        return self.trainers * (self.steps * (len(self.kinds) + 1) + 2)


KINDS = (
    "kill server", "kill server", "kill at disk", "kill at disk", "kill trainer", "kill job", "pause server",
    "pause trainer", "cut server", "cut trainer", "break", "full disk", "rot",
)  # fmt: skip


def draw_scenario(seed: int) -> Scenario:
    """The scenario of a seed."""
    source = random.Random(f"scenario {seed}")
    hostile = source.random() < 0.5
    faults = Faults(
        latency_s=source.choice([5e-5, 5e-4]),
        slow=source.choice([0.0, 0.02]),
        lost=0.004 if hostile else 0.0,
        duplicate=0.05 if hostile else 0.0,
        reordered=0.05 if hostile else 0.0,
        reset=source.choice([0.0, 0.004]),
    )
    durability = source.choice(["log", "log", "disk"])
    kinds = [source.choice(KINDS) for _ in range(source.randrange(1, 7))]
    if durability == "disk":
        kinds = ["fail power" if kind == "kill server" else kind for kind in kinds]
    return Scenario(
        mode=source.choice(["sync", "async", "half_async", "geo"]),
        servers=source.choice([1, 2, 2]),
        trainers=source.choice([1, 2, 2, 3]),
        steps=source.randrange(5, 14),
        k_steps=source.choice([1, 3]),
        durability=durability,
        is_initialised_by_trainer=source.random() < 0.3,
        log_bytes=source.choice([1000, 8000, 1 << 26]),
        faults=faults,
        kinds=tuple(kinds),
        every_s=source.choice([0.005, 0.05, 1.0]),
        disk_s=source.choice([0.0, 0.0, 0.002]),
        tick_s=source.choice([0.002, 0.5]),
        preempts=source.choice([0.05, 0.2, 0.5]),
    )


def plan_of(scenario: Scenario) -> JobPlan:
    """A vector on each server, and a table over all of them."""
    endpoints = tuple(f"127.0.0.1:{6000 + server}" for server in range(scenario.servers))
    length = scenario.size + 1
    dense = tuple(
        Dense(f"w{s}", f"w{s}@GRAD", (length,), "rate", (VariableBlock(f"w{s}", 0, 0, (length,), True, s),))
        for s in range(scenario.servers)
    )
    # sgd with such a decay is x <- 2x - gradient: a row shows the order of its pushes, in exact integers.
    optimizer = RowOptimizer("sgd") if scenario.mode == "geo" else RowOptimizer("sgd", {"l2": -1.0})
    table = TableSpec("table", 1, RowInit("constant", 0.0), optimizer)
    return JobPlan(
        *(endpoints, scenario.trainers, scenario.mode, dense, (table,)),
        k_steps=scenario.k_steps,
        initialised_by_trainer=scenario.is_initialised_by_trainer,
    )


@dataclass
class Seen:
    """What one trainer has done and seen, over all of its incarnations; by server."""

    vectors: list[History]
    rows: list[History]
    steps: int = 0
    index: int = 0


@dataclass
class Outcome:
    """What came of a seed."""

    violations: list[str]
    counts: Counter[str]
    digest: int


class Job:
    """The processes of one seed."""

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None, **settings: Any) -> None:
        """`settings`: fields of the scenario that do not come from the seed."""
        self.scenario = replace(draw_scenario(seed), **settings)
        self.world = World(seed, self.scenario.preempts)
        self.network = Network(self.world, self.scenario.faults)
        self.plan = plan_of(self.scenario)
        self.disks = [SimulatedDisk(self.world, self.scenario.disk_s) for _ in range(self.scenario.servers)]
        self.servers: list[Process | None] = [None] * self.scenario.servers
        self.trainers: list[Process | None] = [None] * self.scenario.trainers
        self.seen = [
            Seen([History() for _ in self.disks], [History() for _ in self.disks])
            for _ in range(self.scenario.trainers)
        ]
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.order_rows: list[Tensor] = []
        """By server: the rows that show the order of pushes, at the end."""
        self._job = 0
        self._rotten: dict[int, tuple[Path, int]] = {}
        self._was_full: set[int] = set()
        self._faults = list(self.scenario.kinds)
        self._finished: set[int] = set()
        """Trainers whose script has come to its end."""
        self._trace = trace or (lambda text: None)

    def run(self) -> Outcome:
        """Run the job to its end, and check it."""
        more = {
            "snapshots__LOG_BYTES": self.scenario.log_bytes,
            "snapshots__LOG_PER_STATE": 0,
            "service__TICK_S": self.scenario.tick_s,
        }
        with installed(self.world, self.network, **more), self._errors_recorded():
            try:
                self._run()
            except Stuck as e:
                self.violations.append(f"hang: {e}; {self._waiting()}")
            finally:
                self.world.close()
        self.violations += self.world.errors
        if not self.violations:
            self.violations += self.checked()
        return Outcome(self.violations, self.counts, self.world.random.getrandbits(64))

    @contextmanager
    def _errors_recorded(self) -> Iterator[None]:
        """Inside, what a server logs as an error that no fault explains is a violation."""

        def check(record: logging.LogRecord) -> bool:
            if record.levelno >= logging.ERROR and not _EXPECTED.search(record.getMessage()):
                self.violations.append(f"logged: {record.getMessage()}")
            return True

        logger.addFilter(check)
        try:
            yield
        finally:
            logger.removeFilter(check)

    def _run(self) -> None:
        for server in range(self.scenario.servers):
            self._start_server(server)
        for trainer in range(self.scenario.trainers):
            self._start_trainer(trainer)
        self.world.after(self.world.random.random() * self.scenario.every_s, self._next_fault)
        until = self.world.now + _PATIENCE_S
        self.world.run(lambda: bool(self.violations) or self._is_done(), until)
        if self.violations:
            return
        first = self._read_all("reader")
        for server in range(self.scenario.servers):
            self._kill_server(server, restart_s=0.1)
        again = self._read_all("reader after a restart")
        if any(not torch.equal(a, b) for a, b in zip(first, again, strict=False)) and not self.violations:
            self.violations.append("a restart of all servers has changed the values")

    def _is_done(self) -> bool:
        return len(self._finished) == self.scenario.trainers and not self._faults

    def _waiting(self) -> str:
        return "; ".join(
            f"{process.name} step {seen.steps}"
            for process, seen in zip(self.trainers, self.seen, strict=True)
            if process is not None and not process.is_over
        )

    # --- processes ------------------------------------------------------------------------------------

    def _start_server(self, number: int) -> None:
        job = f"job {self._job}"
        process = self.world.process(f"server {number}", lambda: self._serve(number, job))
        self.servers[number] = process
        self._watch(process, lambda error: self._server_failed(number, error))

    def _serve(self, number: int, job: str) -> None:
        scenario = self.scenario
        updater = RevealingUpdater(f"w{number}", scenario.size, adds=scenario.mode == "geo")
        Service(
            *(self.plan, number, updater, SETTINGS, Path(f"/state/server_{number}")),
            stays=True,
            durability=scenario.durability,
            job=job,
            disk=self.disks[number],
        ).serve()

    def _watch(self, process: Process, failed: Callable[[BaseException], None]) -> None:
        """Look from time to time whether a process has failed; then the rest of it is gone, too."""
        if process.is_dead:
            return
        if process.is_over:
            self.world.kill(process)
            if process.failure is not None:
                failed(process.failure)
            return
        self.world.after(0.01, lambda: self._watch(process, failed))

    def _server_failed(self, number: int, error: BaseException) -> None:
        self._trace(f"server {number} has failed: {error!r}")
        if isinstance(error, CorruptFileError) and number in self._rotten:
            self.counts["corruption detected"] += 1
            self._heal(number)
        elif not (isinstance(error, OSError) and number in self._was_full):
            self.violations.append(f"server {number} has failed: {error!r}")
            return
        self.world.after(0.5, lambda: self._start_server(number))

    def _start_trainer(self, number: int) -> None:
        process = self.world.process(f"trainer {number}", lambda: self._train(number))
        self.trainers[number] = process
        self._watch(process, lambda error: self._trainer_failed(number, error))

    def _trainer_failed(self, number: int, error: BaseException) -> None:
        self._trace(f"trainer {number} has failed: {error!r}")
        self.violations.append(f"trainer {number} has failed: {error!r}")

    # --- training -------------------------------------------------------------------------------------

    def _train(self, number: int) -> None:
        """What a trainer's script does; a restarted trainer repeats all barriers."""
        scenario, seen = self.scenario, self.seen[number]
        trainer = Trainer(self.plan, number, SETTINGS)
        if scenario.is_initialised_by_trainer and number == 0 and not trainer.connection.is_initialised:
            trainer.blocks.initialise(
                {d.name: torch.zeros(d.shape, dtype=torch.float64) for d in self.plan.dense}
            )
        if scenario.mode != "geo":
            trainer.blocks.pull({d.name: torch.empty(d.shape, dtype=torch.float64) for d in self.plan.dense})
        stepper = _GeoSteps(self, trainer, seen) if scenario.mode == "geo" else _Steps(self, trainer, seen)
        barriers = 0
        while True:
            step = stepper.next_step
            while barriers * _BARRIER_EVERY + _FIRST_BARRIER <= min(step, scenario.steps):
                self._all_reduce(trainer, barriers)
                barriers += 1
            if step > scenario.steps:
                break
            stepper.step(step)
            seen.steps = max(seen.steps, step)
            self.counts["steps"] += 1
        trainer.leave()
        self._finished.add(number)

    def _all_reduce(self, trainer: Trainer, number: int) -> None:
        first = 1000 * self._job + 100 * number + 1
        total = int(trainer.group.all_reduce(torch.tensor([first + trainer.number]), "sum", "sum"))
        expected = sum(first + other for other in range(self.scenario.trainers))
        if total != expected:
            self.violations.append(
                f"all-reduce {number}: trainer {trainer.number} got {total} and not {expected}"
            )

    def index_of_step(self, step: int, number: int) -> int:
        """sync: a trainer that is restarted does a step again that it had not completed; in one job it counts once."""
        steps_before = self._job * self.scenario.steps + step - 1
        return steps_before * self.scenario.trainers + number

    def next_index(self, number: int) -> int:
        """An index that no push has had."""
        seen = self.seen[number]
        seen.index += 1
        return (seen.index - 1) * self.scenario.trainers + number

    def _read_all(self, name: str) -> list[Tensor]:
        """What the servers have, read by a process of its own when all is over."""
        tensors: list[Tensor] = []
        length = self.scenario.size + 1

        def read() -> None:
            trainer = Trainer(self.plan, 0, SETTINGS)
            values = {d.name: torch.empty(length, dtype=torch.float64) for d in self.plan.dense}
            began = self.world.now
            trainer.blocks.pull(values)
            rows = self.read_rows(trainer, range(self.scenario.size), 0)
            for server, value in enumerate(values.values()):
                self.record_pull(0, server, began, value, None)
                self.record_rows(0, server, began, rows[server])
            places = range(_ORDER_ROWS, _ORDER_ROWS + -(-self.scenario.size // PUSHES_OF_ROW))
            self.order_rows = self.read_rows(trainer, places, 0)
            tensors.extend([*values.values(), *rows, *self.order_rows])
            trainer.leave()

        process = self.world.process(name, read)
        self.world.run(lambda: process.is_over or bool(self.violations), self.world.now + _PATIENCE_S)
        if process.failure is not None:
            self.violations.append(f"{name}: {process.failure!r}")
        return tensors

    def read_rows(self, trainer: Trainer, indices: range, step: int) -> list[Tensor]:
        """The rows of these indices, by server."""
        ids = torch.tensor(
            [i * self.scenario.servers + s for s in range(self.scenario.servers) for i in indices]
        )
        rows = trainer.rows.start_pull("table", ids, step, create=False).wait()[:, 0]
        return list(rows.double().split(len(indices)))

    def record_pull(self, number: int, server: int, began: float, value: Tensor, step: int | None) -> None:
        """A trainer has read a vector."""
        order = None if self.scenario.mode == "geo" else int(value[-1])
        pull = Pull(began, self.world.now, value[:-1].numpy().copy(), order, step, number)
        self.seen[number].vectors[server].pulls.append(pull)

    def record_rows(self, number: int, server: int, began: float, value: Tensor) -> None:
        pull = Pull(began, self.world.now, value.numpy().copy())
        self.seen[number].rows[server].pulls.append(pull)

    # --- faults ---------------------------------------------------------------------------------------

    def _next_fault(self) -> None:
        if self.violations or not self._faults:
            return
        kind = self._faults[0]
        self._trace(kind)
        self.counts[kind] += 1
        source = self.world.random
        server, trainer = source.randrange(self.scenario.servers), source.randrange(self.scenario.trainers)
        pause_s = source.choice([0.001, 0.1, 3.0])
        happens: dict[str, Callable[[], None]] = {
            "kill server": lambda: self._kill_server(server, pause_s),
            "fail power": lambda: self._kill_server(server, pause_s, fails_power=True),
            "rot": lambda: self._kill_server(server, pause_s, rots=True),
            "kill at disk": lambda: self.disks[server].kill_in(
                source.randrange(20), partial(self._kill_server, server, pause_s)
            ),
            "kill trainer": lambda: self._kill_trainer(trainer, pause_s),
            "kill job": lambda: self._kill_job(pause_s),
            "pause server": lambda: self._pause(self.servers[server], pause_s),
            "pause trainer": lambda: self._pause(self.trainers[trainer], pause_s),
            "cut server": lambda: self.network.cut(f"server {server}", 10 * pause_s),
            "cut trainer": lambda: self.network.cut(f"trainer {trainer}", pause_s),
            "break": lambda: self.network.break_all(f"server {server}"),
            "full disk": lambda: self._fill_disk(server, pause_s),
        }
        happens[kind]()
        self.world.after(source.random() * 2 * self.scenario.every_s, self._fault_done)

    def _pause(self, process: Process | None, seconds: float) -> None:
        if process is not None:
            self.world.pause(process, seconds)

    def _fault_done(self) -> None:
        self._faults.pop(0)
        self._next_fault()

    def _kill_server(
        self, number: int, restart_s: float, rots: bool = False, fails_power: bool = False
    ) -> None:
        process = self.servers[number]
        if process is None or process.is_dead:
            return
        self.world.kill(process)
        self._heal(number)
        if fails_power:
            self.disks[number].fail_power()
        if rots and (place := self.disks[number].rot()) is not None:
            self._rotten[number] = place
        self.world.after(restart_s, lambda: self._start_server(number))

    def _heal(self, number: int) -> None:
        if (place := self._rotten.pop(number, None)) is not None:
            self.disks[number].heal(place)

    def _kill_trainer(self, number: int, restart_s: float) -> None:
        process = self.trainers[number]
        if process is not None and not process.is_over:
            self.world.kill(process)
            self.world.after(restart_s, lambda: self._start_trainer(number))

    def _kill_job(self, restart_s: float) -> None:
        """Kill everything; another job begins with the state that this one has left."""
        if any(process is None or process.is_dead for process in self.servers):
            return  # a server that is away would come back with the old job
        if self._finished or any(process is None or process.is_over for process in self.trainers):
            return
        self._job += 1
        for process in [*self.servers, *self.trainers]:
            assert process is not None, "it was started"
            self.world.kill(process)
        for number in range(self.scenario.servers):
            self._heal(number)
            self.world.after(restart_s, partial(self._start_server, number))
        for number in range(self.scenario.trainers):
            self.world.after(restart_s, partial(self._start_trainer, number))

    def _fill_disk(self, number: int, seconds: float) -> None:
        disk = self.disks[number]
        disk.is_full = True
        self._was_full.add(number)

        def clear() -> None:
            disk.is_full = False

        self.world.after(seconds, clear)

    # --- checks ---------------------------------------------------------------------------------------

    _RESTARTS = frozenset({"kill server", "kill at disk", "fail power", "rot", "kill trainer", "kill job"})

    def checked(self) -> list[str]:
        """What is wrong with what the trainers have seen."""
        size, mode, problems = self.scenario.size, self.scenario.mode, []
        for server in range(self.scenario.servers):
            vectors = History().joined([seen.vectors[server] for seen in self.seen])
            problems += checker.violations(vectors, size)
            if mode == "sync":
                problems += checker.steps_differ(vectors)
            elif mode != "geo":
                problems += checker.order_violations(vectors)
            if mode == "half_async" and not any(
                "kill" in kind or kind in ("rot", "fail power") for kind in self.counts
            ):
                problems += checker.stale(vectors)  # restarted servers and trainers count steps from 1 again
            rows = History().joined([seen.rows[server] for seen in self.seen])
            problems += [f"table: {text}" for text in checker.violations(rows, size)]
            if self.shows_row_order and not problems:
                problems += self._check_row_order(rows, self.order_rows[server])
        return problems

    @property
    def shows_row_order(self) -> bool:
        """True if rows are changed by one push after another: not by the mean of a step, nor by sums."""
        return self.scenario.mode in ("async", "half_async")

    def _check_row_order(self, history: History, order_rows: Tensor) -> list[str]:
        last = max(history.pulls, key=lambda pull: pull.ended).values
        applied: dict[int, list[Push]] = defaultdict(list)
        for push in history.pushes:
            if last[push.index]:
                applied[push.index // PUSHES_OF_ROW].append(push)
        texts = [checker.row_violation(int(row), applied[place]) for place, row in enumerate(order_rows)]
        return [f"table: {text}" for text in texts if text]


class _Steps:
    """sync, async, half_async: one push and one pull for each step."""

    def __init__(self, job: Job, trainer: Trainer, seen: Seen) -> None:
        self._job, self._trainer, self._seen = job, trainer, seen

    @property
    def next_step(self) -> int:
        if self._job.plan.is_synchronous:
            return self._trainer.connection.next_step
        return self._seen.steps + 1

    def step(self, step: int) -> None:
        job, trainer = self._job, self._trainer
        scenario, number = job.scenario, trainer.number
        index = job.index_of_step(step, number) if scenario.mode == "sync" else job.next_index(number)
        # sync takes the mean over the trainers.
        factor = float(scenario.trainers) if scenario.mode == "sync" else 1.0
        began = job.world.now
        pushes = self._begin(index, began, step)
        values = {}
        for server, dense in enumerate(job.plan.dense):
            gradient = torch.zeros(scenario.size + 1, dtype=torch.float64)
            gradient[index], gradient[-1] = factor, factor * (index + 1)
            trainer.blocks.send(gradient, 1.0, [dense.name], [len(gradient)], [server])
            values[dense.name] = torch.empty_like(gradient)
        trainer.rows.push("table", *self._rows(index, -factor), 1.0)
        trainer.blocks.end_step()
        if scenario.mode == "async":
            trainer.connection.wait_acked()
            _end(pushes, job.world.now)
            began = job.world.now
        for server, (name, value) in enumerate(values.items()):
            trainer.blocks.recv(value, [name], [len(value)], [server])
        trainer.blocks.fetch()
        _end(pushes, job.world.now)
        for server, value in enumerate(values.values()):
            job.record_pull(number, server, began, value, step if job.plan.is_synchronous else None)
        if job.plan.is_synchronous and job.world.random.random() < 0.3:
            began = job.world.now
            trainer.blocks.pull(values)
            for server, value in enumerate(values.values()):
                job.record_pull(number, server, began, value, step)
        if job.world.random.random() < 0.3:
            began = job.world.now
            after = trainer.connection.next_step - 1 if scenario.mode == "sync" else 0
            for server, rows in enumerate(job.read_rows(trainer, range(scenario.size), after)):
                job.record_rows(number, server, began, rows)

    def _begin(self, index: int, began: float, step: int) -> list[Push]:
        number, step = self._trainer.number, step if self._job.plan.is_synchronous else 0
        pushes = []
        for history in [*self._seen.vectors, *self._seen.rows]:
            pushes.append(Push(index, began, trainer=number, step=step))
            history.pushes.append(pushes[-1])
        return pushes

    def _rows(self, index: int, gradient: float) -> tuple[Tensor, Tensor]:
        """A row of its own on each server, and one that shows the order."""
        servers = range(self._job.scenario.servers)
        ids = [index * len(servers) + s for s in servers]
        rows = [gradient] * len(ids)
        if self._job.shows_row_order:
            ids += [(_ORDER_ROWS + index // PUSHES_OF_ROW) * len(servers) + s for s in servers]
            rows += [-float(index % PUSHES_OF_ROW + 1)] * len(servers)
        return torch.tensor(ids), torch.tensor(rows)[:, None]


class _GeoSteps(_Steps):
    """geo: a step changes the local values; every k steps the trainers synchronize their deltas."""

    def __init__(self, job: Job, trainer: Trainer, seen: Seen) -> None:
        super().__init__(job, trainer, seen)
        length = job.scenario.size + 1
        self._values = {d.name: torch.empty(length, dtype=torch.float64) for d in job.plan.dense}
        self._synchronized_at = job.world.now
        trainer.blocks.pull(self._values)
        trainer.geo.begin(self._values)
        self._mine: list[int] = []
        """What this incarnation has pushed."""
        self._unsent: dict[int, list[Push]] = {}

    def step(self, step: int) -> None:
        job, trainer = self._job, self._trainer
        scenario, number = job.scenario, trainer.number
        index, began = job.next_index(number), job.world.now
        for value in self._values.values():
            value[index] += scenario.trainers  # the others get this trainer's share of the mean
        ids, gradients = self._rows(index, -float(scenario.trainers))
        trainer.lookups.lookup("table", [ids])
        self._mine.append(index)
        self._unsent[index] = self._begin(index, began, step)
        trainer.lookups.push_rows("table", [ids], [gradients], 1.0)
        trainer.geo.step(list(self._values.values()), list(self._values))
        is_synchronized = len(self._mine) % scenario.k_steps == 0
        if step >= scenario.steps and not is_synchronized:
            trainer.geo.synchronize(self._values)
            is_synchronized = True
        if is_synchronized:
            self._synchronized_at = began
            self._drop_residue()
            for pushes in self._unsent.values():
                _end(pushes, job.world.now)
            self._unsent = {}
        self._record()

    def _drop_residue(self) -> None:
        """Reset to the servers' values: the rest of a change would be sent piece by piece later."""
        geo = self._trainer.geo
        for name, value in self._values.items():
            value.copy_(geo._old[name])
        for cache in geo._caches.values():
            ids = cache._trained.ids()
            cache._trained.assign(ids, cache._old.pull(ids))

    def _record(self) -> None:
        """Record the local values without unsent pushes: at least the servers' values at the last synchronization."""
        job = self._job
        for server, value in enumerate(self._values.values()):
            seen = value.clone()
            seen[list(self._unsent)] = 0.0
            job.record_pull(self._trainer.number, server, self._synchronized_at, seen, None)


def _end(pushes: list[Push], now: float) -> None:
    for push in pushes:
        push.ended = min(push.ended, now)


def simulate(seed: int, **settings: Any) -> Outcome:
    """Run one seed; `settings`: fields of the scenario that do not come from it."""
    return Job(seed, **settings).run()

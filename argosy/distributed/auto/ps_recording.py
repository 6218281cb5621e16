"""Record the steps of a worker with parameter servers: its operations, and the core time of threads, its servers' too.

    begin_step ─ compute ─▶ start push 0 ─ compute ─▶ wait push 0 ─▶ … ─▶ begin_step
                 core time of this thread in between; requests and replies with their bytes

Jobs that are compared take turns: a file says whose turn it is, and a worker of another job waits before its next step.
Used by the processes of `python -m argosy.plan servers`, and in no other: it replaces methods of the client.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import statistics
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.distributed.fleet.ps_mode import ServerMode
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program
from argosy.engine.planner.data_files import to_data, write_text
from argosy.engine.planner.ps_measured import MeasuredStep, Operation
from argosy.engine.ps.protocol.job_plan import JobPlan
from argosy.engine.ps.rpc.client import Client, PendingReply, Reply
from argosy.engine.ps.trainer.trainer import Trainer

WARM_UP = 30
"""Steps before the measured ones."""
TURN, RESULT, PIDS = "turn", "worker{}.result", "{}.pids"
READY = "{}.ready{}"
_POLL_S = 0.005
_MOST = 4000
"""Steps that are kept."""
_Event = tuple[str, int, str, int, int, int]
"""Verb, id of the request, kind, core time, bytes sent and received."""


def set_mode(mode: str, k_steps: int) -> None:
    """Make every strategy of this process one of this mode."""
    rewrite = ServerMode.rewrite

    def rewritten(
        self: ServerMode, program: Program, startup: Program, strategy: DistributedStrategy
    ) -> None:
        configs = {"k_steps": k_steps if mode == "geo" else 0, "half_async": mode == "half_async"}
        strategy.a_sync = mode != "sync"
        strategy.a_sync_configs = {**configs, "max_merge_var_num": 1, "min_send_grad_num_before_recv": 1}
        rewrite(self, program, startup, strategy)

    ServerMode.rewrite = rewritten  # type: ignore[method-assign]


def thread_ns(pid: int | str) -> dict[tuple[str, bool, bool], int]:
    """Core time of the threads of a process: by id, whether it is the main one, and whether it is ZeroMQ's."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            spent = int((task / "schedstat").read_text().split()[0])
            name = (task / "comm").read_text()
        except (OSError, IndexError, ValueError):  # the thread has ended
            continue
        found[task.name, task.name == str(pid), name.startswith("ZMQbg")] = spent
    return found


class PsRecorder:
    """Records the worker of this process, in the turns of its job."""

    def __init__(self, folder: Path, job: str, worker: int) -> None:
        self._folder, self._job, self._worker = folder, job, worker
        self._thread = 0
        self._count = 0
        self._events: list[_Event] = []
        self._stamp = 0
        self._steps: list[list[_Event]] = []
        self._walls: list[float] = []
        self._began = 0.0
        self._num_steps = 0
        self._main_ns = 0
        self._before: dict[str, int] | None = None
        self._spent: Counter[str] = Counter()
        self._servers: list[int] = []
        self._plan: JobPlan | None = None

    def install(self) -> None:
        """Replace the methods that are recorded."""
        begin_step, start, wait = Trainer.begin_step, Client.start, PendingReply.wait
        recorder = self

        def recorded_begin(self: Trainer) -> None:
            recorder.begin_step(self.plan)
            begin_step(self)

        def recorded_start(
            self: Client,
            server: int,
            kind: str,
            meta: Mapping[str, Any] | None = None,
            tensors: Sequence[Any] = (),
        ) -> PendingReply:
            reply = start(self, server, kind, meta, tensors)
            recorder.note("start", reply, sum(tensor.nbytes for tensor in tensors), 0)
            return reply

        def recorded_wait(self: PendingReply, what: str = "") -> Reply:
            stamp = time.thread_time_ns()
            reply = wait(self, what)
            recorder.note("wait", self, 0, sum(tensor.nbytes for tensor in reply.tensors), stamp)
            return reply

        Trainer.begin_step = recorded_begin  # type: ignore[method-assign]
        Client.start = recorded_start  # type: ignore[method-assign]
        PendingReply.wait = recorded_wait  # type: ignore[method-assign]

    def note(
        self, verb: str, reply: PendingReply, sent: int, received: int, stamp: int | None = None
    ) -> None:
        """Note an operation of the thread of the steps."""
        if threading.get_ident() == self._thread:
            now = time.thread_time_ns() if stamp is None else stamp
            # The key is unique among the requests of one worker.
            self._events.append((verb, reply.id * 4096 + reply.server, reply.kind, now, sent, received))

    def begin_step(self, plan: JobPlan) -> None:
        """The step before has ended; wait for the turn, and begin another one."""
        self._plan = plan
        if not self._thread:
            self._thread = threading.get_ident()
        if threading.get_ident() != self._thread:
            raise ConfigError("the script trains in several threads; measure it with one (thread_num = 1)")
        ended, now = time.thread_time_ns(), time.perf_counter()
        if self._before is not None:
            self._end_step(ended, now)
        if self._count == WARM_UP:
            (self._folder / READY.format(self._job, self._worker)).touch()
        if self._count >= WARM_UP and not self._has_turn():
            self._wait_for_turn()
        self._count += 1
        self._events, self._began = [], time.perf_counter()
        self._stamp = time.thread_time_ns()

    def _end_step(self, ended: int, now: float) -> None:
        self._num_steps += 1
        self._main_ns += ended - self._stamp
        self._walls.append((now - self._began) * 1e3)
        if len(self._steps) < _MOST:
            self._steps.append(
                [*self._events, ("end", 0, "", ended, 0, 0), ("begin", 0, "", self._stamp, 0, 0)]
            )

    def _has_turn(self) -> bool:
        try:
            return (self._folder / TURN).read_text() == self._job
        except OSError:
            return False

    def _wait_for_turn(self) -> None:
        if self._before is not None:
            now = self._totals()
            self._spent.update({key: now[key] - self._before[key] for key in now})
            self._before = None
            self._write()
        while not self._has_turn():
            time.sleep(_POLL_S)
        if not self._servers:
            pids = (self._folder / PIDS.format(self._job)).read_text()
            self._servers = [int(pid) for pid in pids.split()]
        self._before = self._totals()

    def _totals(self) -> dict[str, int]:
        """Core time so far, of the other threads of this worker, and of the servers' transport and dispatch."""
        own = sum(thread_ns("self").values()) - time.thread_time_ns()
        server = 0
        for pid in self._servers:
            server += sum(
                spent for (_, is_main, is_zmq), spent in thread_ns(pid).items() if is_main or is_zmq
            )
        return {"transport": own, "server": server}

    def _write(self) -> None:
        assert self._plan is not None, "a step has begun"
        content = {
            "num_steps": self._num_steps,
            "step_ms": statistics.median(self._walls),
            "mean_ms": statistics.fmean(self._walls),
            "main_ms": self._main_ns / 1e6 / self._num_steps,
            "transport_ns": self._spent["transport"],
            "server_ns": self._spent["server"],
            "steps": [to_data(step) for step in _summaries(self._steps, self._plan.mode == "geo")],
        }
        write_text(self._folder / f"{self._job}.{RESULT.format(self._worker)}", json.dumps(content))


def _summaries(steps: Sequence[list[_Event]], is_geo: bool) -> list[MeasuredStep]:
    """The operations of the most frequent sort of steps; in geo of those that synchronize, and of those that do not."""
    sorts: dict[bool, dict[tuple[Any, ...], list[list[_Event]]]] = {}
    for events in steps:
        numbers: dict[int, int] = {}
        for verb, request, *_ in events:
            if verb == "start":
                numbers.setdefault(request, len(numbers))
        signature = tuple((verb, numbers.get(request, -1), kind) for verb, request, kind, *_ in events)
        periodic = is_geo and any(kind == "push" for _, _, kind in signature)
        sorts.setdefault(periodic, {}).setdefault(signature, []).append(events)
    found = []
    for periodic, by_signature in sorted(sorts.items(), reverse=True):
        signature, alike = max(by_signature.items(), key=lambda entry: len(entry[1]))
        found.append(_summary(signature, alike, periodic))
    return found


def _summary(signature: tuple[Any, ...], alike: list[list[_Event]], periodic: bool) -> MeasuredStep:
    operations, sent_of, ahead = [], {}, Counter[str]()
    received_of = {number: 0 for verb, number, _ in signature if verb == "start"}
    places = [n for n, (verb, *_) in enumerate(signature) if verb != "begin"]
    for n in places:
        verb, number, _ = signature[n]
        if verb == "start":
            sent_of[number] = _median([events[n][4] for events in alike])
        elif verb == "wait" and number >= 0:
            received_of[number] = _median([events[n][5] for events in alike])
    last_of_kind = {kind: number for verb, number, kind in signature if verb == "start"}
    for n in places:
        verb, number, kind = signature[n]
        before = -1 if n == 0 else n - 1  # the last entry is the begin of the step
        ms = _median([(events[n][3] - events[before][3]) / 1e3 for events in alike]) / 1e3
        if verb == "wait" and number < 0:  # started by the step before: a prefetch
            ahead[kind] += 1
            number = last_of_kind.get(kind, -1)
            if number < 0 or ahead[kind] > 1:
                continue
            received_of[number] = _median([events[n][5] for events in alike])
        operations.append(Operation(verb, max(number, 0), kind, ms))
    filled = [
        Operation(o.verb, o.number, o.kind, o.ms, sent_of[o.number], received_of[o.number])
        if o.verb == "start"
        else o
        for o in operations
    ]
    return MeasuredStep(tuple(filled), periodic)


def _median(values: Sequence[float]) -> int:
    return round(statistics.median(values))

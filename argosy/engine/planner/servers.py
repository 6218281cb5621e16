"""Parameter servers: the flows of requests, thread pools with a queue, synchronous rounds.

    push      flow to the servers ─▶ queue ─▶ a thread                        sync: acknowledged with the step's update
    barrier   sync, half_async: when the pushes of all workers are there, the servers update, and reply to what waits
    pull      request ─▶ sync: waits for the update ─▶ queue ─▶ a thread ─▶ flow to the worker
    lookup    flow ─▶ queue ─▶ a thread ─▶ flow

The servers have equal parts of everything, so one of them stands for all. Synchronous workers are one class with their
number; asynchronous ones are simulated one by one, because they soon do not send at the same time.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from argosy.engine.planner.fluid import Activity, Clock, Resource
from argosy.engine.planner.ps_setup import PsSetup
from argosy.engine.planner.step_trace import Request
from argosy.engine.planner.topology import Link
from argosy.engine.planner.work_record import WorkRecord

Done = Callable[[WorkRecord], None]


@dataclass(frozen=True)
class WorkerLinks:
    """The network of a class of workers."""

    tx: Resource
    rx: Resource
    link: Link
    on_host: int
    """Workers of the class on one host."""
    count: int
    """Workers of the class."""


@dataclass(eq=False)
class _Round:
    """A step of all workers at the servers."""

    arrived: int = 0
    pushes: int = 0
    """Received, and not processed yet, or still on the way."""
    nbytes: float = 0.0
    """Of one worker, on one server."""
    is_done: bool = False
    record: WorkRecord | None = None
    after: list[Done] = field(default_factory=list)


class Servers:
    """All servers of a job."""

    def __init__(self, clock: Clock, setup: PsSetup, link: Link, workers: Sequence[WorkerLinks]) -> None:
        self.clock, self.setup, self.link, self.workers = clock, setup, link, workers
        self.tx = Resource("tx of a server host", "link", link.bytes_per_s)
        self.rx = Resource("rx of a server host", "link", link.bytes_per_s)
        self._per_host = min(setup.servers_per_host, setup.servers)
        self._free = setup.threads
        self._queue: deque[tuple[int, float, Request, int, WorkRecord | None, Done, float]] = deque()
        self._last_served: WorkRecord | None = None
        self._rounds: dict[int, _Round] = {}

    def send(self, actor: int, request: Request, step: int, cause: WorkRecord | None, done: Done) -> None:
        """Send a request of a class of workers; `done` is called with what it waited for last."""
        setup = self.setup
        if request.kind == "barrier" and not setup.is_synchronous:
            done(WorkRecord("flow", actor, request, self.clock.now, self.clock.now, cause))
        elif request.kind == "push":
            self._push(actor, request, step, cause, done)
        elif request.kind == "barrier":
            self._flow(actor, request, 0, True, cause, lambda r: self._arrive(actor, request, step, r, done))
        elif request.kind == "pull":
            self._flow(actor, request, 0, True, cause, lambda r: self._pull(actor, request, step, r, done))
        else:
            self._flow(
                actor,
                request,
                request.sent_bytes,
                True,
                cause,
                lambda r: self._serve_and_reply(actor, request, r, done),
            )

    # --- requests -------------------------------------------------------------------------------------

    def _push(self, actor: int, request: Request, step: int, cause: WorkRecord | None, done: Done) -> None:
        part = request.sent_bytes / self.setup.servers
        seconds = self._seconds(part, self.setup.push_s_per_gb)
        current = self._round(step)
        if self.setup.is_synchronous:
            current.pushes += 1
            if actor == 0:
                current.nbytes += part

        def served(record: WorkRecord) -> None:
            if not self.setup.is_synchronous:
                self._flow(actor, request, 0, False, record, done)
                return
            current.pushes -= 1
            current.after.append(lambda updated: self._flow(actor, request, 0, False, updated, done))
            self._update_if_complete(current, record)

        self._flow(
            actor,
            request,
            request.sent_bytes,
            True,
            cause,
            lambda record: self._serve(actor, request, seconds, record, served),
        )

    def _arrive(self, actor: int, request: Request, step: int, record: WorkRecord, done: Done) -> None:
        current = self._round(step)
        current.arrived += 1
        current.after.append(lambda updated: self._flow(actor, request, 0, False, updated, done))
        self._update_if_complete(current, record)

    def _pull(self, actor: int, request: Request, step: int, record: WorkRecord, done: Done) -> None:
        current = self._round(step)
        if not self.setup.is_synchronous or current.is_done:
            self._serve_and_reply(actor, request, record, done)
        else:
            current.after.append(lambda updated: self._serve_and_reply(actor, request, updated, done))

    def _serve_and_reply(self, actor: int, request: Request, record: WorkRecord, done: Done) -> None:
        part = request.received_bytes / self.setup.servers
        seconds = self._seconds(part, self.setup.pull_s_per_gb)

        def reply(served: WorkRecord) -> None:
            self._flow(actor, request, request.received_bytes, False, served, done)

        self._serve(actor, request, seconds, record, reply)

    def _round(self, step: int) -> _Round:
        return self._rounds.setdefault(step, _Round())

    def _update_if_complete(self, current: _Round, record: WorkRecord) -> None:
        if current.is_done or current.pushes or current.arrived < len(self.workers):
            return
        current.is_done = True
        seconds = current.nbytes * self.setup.update_s_per_gb / 1e9

        def done(activity: Activity) -> None:
            updated = WorkRecord("update", record.actor, record.about, activity.began, activity.ended, record)
            after, current.after = current.after, []
            for continued in after:
                continued(updated)

        self.clock.begin(Activity("update", "delay", seconds, done=done))

    # --- flows and threads ----------------------------------------------------------------------------

    def _flow(
        self,
        actor: int,
        request: Request,
        nbytes: float,
        is_to_server: bool,
        cause: WorkRecord | None,
        done: Done,
    ) -> None:
        worker, setup = self.workers[actor], self.setup
        part = nbytes / setup.servers
        latency = max(worker.link.latency_us, self.link.latency_us) / 1e6
        per_message = max(worker.link.message_us, self.link.message_us) / 1e6
        transfer = max(nbytes / worker.link.bytes_per_s, part * self._per_host / self.link.bytes_per_s)
        local, remote = (worker.tx, self.rx) if is_to_server else (worker.rx, self.tx)
        takes = (
            {local: nbytes * worker.on_host, remote: part * self._per_host * worker.count} if nbytes else {}
        )

        def ended(activity: Activity) -> None:
            done(WorkRecord("flow", actor, request, activity.began, activity.ended, cause))

        alone = latency + per_message + transfer
        self.clock.begin(Activity(request.id, "network", alone, takes, max(part, 1e-9), done=ended))

    def _seconds(self, part: float, per_gb: float) -> float:
        return self.setup.request_us / 1e6 + part * per_gb / 1e9

    def _serve(self, actor: int, request: Request, seconds: float, cause: WorkRecord, done: Done) -> None:
        """Run a request of each worker of the class in the thread pool, first come first served."""
        self._queue.append((self.workers[actor].count, seconds, request, actor, cause, done, self.clock.now))
        self._run_queue()

    def _run_queue(self) -> None:
        while self._queue:
            count, seconds, request, actor, cause, done, arrived = self._queue[0]
            threads = min(count, self.setup.threads)
            if threads > self._free:
                return
            self._queue.popleft()
            self._free -= threads
            waited = self.clock.now > arrived
            previous = self._last_served if waited and self._last_served is not None else cause
            self._begin_service(count, threads, seconds, request, actor, previous, done)

    def _begin_service(
        self,
        count: int,
        threads: int,
        seconds: float,
        request: Request,
        actor: int,
        previous: WorkRecord | None,
        done: Done,
    ) -> None:
        def ended(activity: Activity) -> None:
            self._free += threads
            record = WorkRecord("service", actor, request, activity.began, activity.ended, previous)
            self._last_served = record
            done(record)
            self._run_queue()

        duration = seconds * math.ceil(count / threads)
        self.clock.begin(Activity(request.id, "delay", duration, done=ended))

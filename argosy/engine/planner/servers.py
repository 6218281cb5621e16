"""Parameter servers: the flows of requests, thread pools with a queue, synchronous rounds.

    push      flow to the servers ─▶ queue ─▶ a thread                        sync: acknowledged with the step's update
    barrier   sync, half_async: when the pushes of all workers are there, the servers update, and reply to what waits
    pull      request ─▶ sync: waits for the update ─▶ queue ─▶ a thread ─▶ flow to the worker
    lookup    flow ─▶ queue ─▶ a thread ─▶ flow

A message takes core time of the worker's and of the server's transport threads, in its flow; a request that of its
thread. Servers of one host share its cores.

The servers have equal parts of everything, so one of them is simulated. Synchronous workers are one class with their
number; asynchronous ones are simulated one by one, because they soon do not send at the same time.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from argosy.engine.planner.fluid import Activity, Clock, Resource
from argosy.engine.planner.ps_setup import PsSetup
from argosy.engine.planner.step_trace import ServerRequest
from argosy.engine.planner.topology import Link
from argosy.engine.planner.work_record import WorkRecord

Done = Callable[[WorkRecord], None]
_POOLS = {"push": "send", "barrier": "send", "pull": "get", "lookup": "prefetch"}
"""By kind of request, the thread pool that runs it, as in ps/rpc/server.py: a pull does not wait for pushes."""


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
    cores: Resource
    """Of their host."""


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
        self.cores = Resource("cores of a server host", "cores", float(setup.cores)) if setup.cores else None
        self._free = Counter(dict.fromkeys(_POOLS.values(), setup.threads))
        self._queues: dict[
            str, deque[tuple[int, float, ServerRequest, int, WorkRecord | None, Done, float]]
        ] = {pool: deque() for pool in _POOLS.values()}
        self._last_served: WorkRecord | None = None
        self._rounds: dict[int, _Round] = {}

    def send(
        self, actor: int, request: ServerRequest, step: int, cause: WorkRecord | None, done: Done
    ) -> None:
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

    def _push(
        self, actor: int, request: ServerRequest, step: int, cause: WorkRecord | None, done: Done
    ) -> None:
        part = request.sent_bytes / self.setup.servers
        seconds = self._seconds(request, part, self.setup.push_s_per_gb)
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

    def _arrive(self, actor: int, request: ServerRequest, step: int, record: WorkRecord, done: Done) -> None:
        current = self._round(step)
        current.arrived += 1
        current.after.append(lambda updated: self._flow(actor, request, 0, False, updated, done))
        self._update_if_complete(current, record)

    def _pull(self, actor: int, request: ServerRequest, step: int, record: WorkRecord, done: Done) -> None:
        current = self._round(step)
        if not self.setup.is_synchronous or current.is_done:
            self._serve_and_reply(actor, request, record, done)
        else:
            current.after.append(lambda updated: self._serve_and_reply(actor, request, updated, done))

    def _serve_and_reply(self, actor: int, request: ServerRequest, record: WorkRecord, done: Done) -> None:
        part = request.received_bytes / self.setup.servers
        seconds = self._seconds(request, part, self.setup.pull_s_per_gb)

        def reply(served: WorkRecord) -> None:
            self._flow(actor, request, request.received_bytes, False, served, done)

        self._serve(actor, request, seconds, record, reply)

    def _round(self, step: int) -> _Round:
        return self._rounds.setdefault(step, _Round())

    def _update_if_complete(self, current: _Round, record: WorkRecord) -> None:
        if current.is_done or current.pushes or current.arrived < len(self.workers):
            return
        current.is_done = True
        setup, num_others = self.setup, sum(worker.count for worker in self.workers) - 1
        per_gb = setup.update_s_per_gb + num_others * setup.mean_s_per_gb
        seconds = setup.update_us / 1e6 + current.nbytes * per_gb / 1e9

        def done(activity: Activity) -> None:
            updated = WorkRecord("update", record.actor, record.about, activity.began, activity.ended, record)
            after, current.after = current.after, []
            for continued in after:
                continued(updated)

        self.clock.begin(self._on_cores(Activity("update", "delay", seconds, done=done), 1))

    # --- flows and threads ----------------------------------------------------------------------------

    def _flow(
        self,
        actor: int,
        request: ServerRequest,
        nbytes: float,
        is_to_server: bool,
        cause: WorkRecord | None,
        done: Done,
    ) -> None:
        worker, setup = self.workers[actor], self.setup
        part = nbytes / setup.servers
        latency = (max(worker.link.latency_us, self.link.latency_us) + setup.wake_us) / 1e6
        per_message = max(worker.link.message_us, self.link.message_us) / 1e6
        transfer = max(nbytes / worker.link.bytes_per_s, part * self._per_host / self.link.bytes_per_s)
        local, remote = (worker.tx, self.rx) if is_to_server else (worker.rx, self.tx)
        takes = (
            {local: nbytes * worker.on_host, remote: part * self._per_host * worker.count} if nbytes else {}
        )

        def ended(activity: Activity) -> None:
            done(WorkRecord("flow", actor, request, activity.began, activity.ended, cause))

        of_worker = setup.servers * setup.worker_message_us / 1e6 + nbytes * setup.worker_s_per_gb / 1e9
        of_server = setup.server_message_us / 1e6 + part * setup.server_s_per_gb / 1e9
        alone = latency + per_message + max(transfer, of_worker, of_server)
        activity = Activity(request.id, "network", alone, takes, max(part, 1e-9), done=ended)
        if of_worker:
            activity.threads[worker.cores] = worker.on_host * of_worker / alone
            activity.thread_counts[worker.cores] = worker.on_host
        if of_server and self.cores is not None:
            count = self._per_host * worker.count
            activity.threads[self.cores] = count * of_server / alone
            activity.thread_counts[self.cores] = count
        self.clock.begin(activity)

    def _on_cores(self, activity: Activity, threads: int) -> Activity:
        """The activity, with so many threads on each server."""
        if self.cores is not None and activity.alone_s > 0:
            activity.threads = {self.cores: float(threads * self._per_host)}
            activity.thread_counts = dict(activity.threads)
        return activity

    def _seconds(self, request: ServerRequest, part: float, per_gb: float) -> float:
        """A request in its thread, with so many bytes for this server."""
        if request.service_us is None and request.service_s_per_gb is None:
            return self.setup.request_us / 1e6 + part * per_gb / 1e9
        part = (request.sent_bytes + request.received_bytes) / self.setup.servers
        return (request.service_us or 0.0) / 1e6 + part * (request.service_s_per_gb or 0.0) / 1e9

    def _serve(
        self, actor: int, request: ServerRequest, seconds: float, cause: WorkRecord, done: Done
    ) -> None:
        """Run a request of each worker of the class in its thread pool, first come first served."""
        pool = _POOLS[request.kind]
        self._queues[pool].append(
            (self.workers[actor].count, seconds, request, actor, cause, done, self.clock.now)
        )
        self._run_queue(pool)

    def _run_queue(self, pool: str) -> None:
        queue = self._queues[pool]
        while queue:
            count, seconds, request, actor, cause, done, arrived = queue[0]
            threads = min(count, self.setup.threads)
            if threads > self._free[pool]:
                return
            queue.popleft()
            self._free[pool] -= threads
            waited = self.clock.now > arrived
            previous = self._last_served if waited and self._last_served is not None else cause
            self._begin_service(count, threads, seconds, request, actor, previous, done)

    def _begin_service(
        self,
        count: int,
        threads: int,
        seconds: float,
        request: ServerRequest,
        actor: int,
        previous: WorkRecord | None,
        done: Done,
    ) -> None:
        def ended(activity: Activity) -> None:
            self._free[pool] += threads
            record = WorkRecord("service", actor, request, activity.began, activity.ended, previous)
            self._last_served = record
            done(record)
            self._run_queue(pool)

        pool = _POOLS[request.kind]
        duration = seconds * math.ceil(count / threads)
        self.clock.begin(self._on_cores(Activity(request.id, "delay", duration, done=ended), threads))

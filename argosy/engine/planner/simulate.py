"""Run the schedules of all classes of ranks.

    main thread        computes, starts, waits, in the order of the nodes
    communicator       runs its collectives over sockets in the order in which they were started; one begins when it is
                       the next one on all ranks of its group
    shared memory      a collective runs inside the wait, when all ranks of its group have arrived there

Each class of ranks is one actor. What an actor waited for last is recorded, so that the critical path can be followed
backwards from the end of a step.
"""

# SPDX-License-Identifier: Apache-2.0
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from argosy.engine.planner.costs import Cost, Costs, Key
from argosy.engine.planner.fluid import Activity, Clock, Resource
from argosy.engine.planner.groups import Placement
from argosy.engine.planner.lowering import Primitive
from argosy.engine.planner.ps_setup import PsSetup
from argosy.engine.planner.schedule import Draws, Durations, Op, Schedule
from argosy.engine.planner.servers import Servers, WorkerLinks
from argosy.engine.planner.step_trace import ServerRequest
from argosy.engine.planner.symmetry import Classes
from argosy.engine.planner.work_record import WorkRecord

_WARM_UP = {"collective": 1, "ps": 8}
"""Steps before the measured ones; asynchronous workers need some until they do not all send at the same time."""
_MEASURED_ASYNC = 8


@dataclass(eq=False)
class Started:
    """A collective of a class of groups, or a request of a class of workers, in one step."""

    target: Primitive | ServerRequest
    members: tuple[int, ...]
    """The actors that take part."""
    number: int
    """In the group, from 1; of a request: of its kind."""
    step: int
    cost: Cost | None = None
    joined: dict[int, float] = field(default_factory=dict)
    """By actor, when it started it; in shared memory, when it arrived at the wait."""
    began: float = -1.0
    ended: float = -1.0
    record: WorkRecord | None = None
    waiting: list["Actor"] = field(default_factory=list)
    waits: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    """By actor, the intervals in which its main thread was blocked on it."""


@dataclass(frozen=True)
class ComputeSpan:
    """A stretch of computation of an actor."""

    step: int
    op: Op
    began: float
    ended: float


@dataclass(eq=False)
class Actor:
    """The main thread of a class of ranks."""

    number: int
    schedule: Schedule
    durations: Durations
    cores: Resource
    num_threads: float
    """Of all ranks of the class on one host."""
    ops: list[Op] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    place: int = 0
    step: int = 0
    last: WorkRecord | None = None
    blocked_since: float = 0.0
    queues: dict[str, deque[Started]] = field(default_factory=dict)
    latest: dict[str, Started] = field(default_factory=dict)
    """By id of a primitive or request, the last one started."""
    counts: dict[str, int] = field(default_factory=dict)
    started: list[Started] = field(default_factory=list)
    spans: list[ComputeSpan] = field(default_factory=list)
    step_ends: list[float] = field(default_factory=list)
    exposed: list[float] = field(default_factory=list)
    """By step, the seconds in which it was blocked."""


@dataclass(frozen=True)
class Simulated:
    """A run of the simulation."""

    actors: list[Actor]
    resources: dict[Key, Resource]
    warm_up: int
    """Steps that are not measured."""
    num_events: int

    def window(self, actor: Actor) -> tuple[float, float]:
        """Begin and end of the measured steps."""
        begin = actor.step_ends[self.warm_up - 1] if self.warm_up else 0.0
        return begin, actor.step_ends[-1]

    @property
    def num_measured(self) -> int:
        return len(self.actors[0].step_ends) - self.warm_up

    @property
    def step_s(self) -> float:
        """Mean seconds of a step; of asynchronous workers, the mean over workers."""
        steps = [(end - begin) / self.num_measured for begin, end in map(self.window, self.actors)]
        return sum(steps) / len(steps)


class Simulation:
    """The same job, to be run several times with different draws of node times."""

    def __init__(
        self,
        placement: Placement,
        schedules: Sequence[Schedule],
        classes: Classes,
        labels: Sequence[int],
        ps: PsSetup | None = None,
    ) -> None:
        self.placement, self.classes, self.ps = placement, classes, ps
        self.schedules = [schedules[labels[int(ranks[0])]] for ranks in classes.ranks]
        self.costs = Costs(placement, classes)
        self.cycle = max(schedule.cycle for schedule in schedules)

    def run(self, seed: int | None = None) -> Simulated:
        """Simulate some steps; with a seed, node times are drawn from their spread."""
        return _Run(self, seed).run()


class _Run:
    def __init__(self, simulation: Simulation, seed: int | None) -> None:
        interference = simulation.placement.topology.interference
        self.simulation = simulation
        self.clock = Clock(interference.computation, interference.communication)
        self.resources = simulation.costs.resources()
        generator = None if seed is None else np.random.default_rng(seed)
        self.actors = [self._actor(number, generator) for number in range(len(simulation.classes.ranks))]
        self._open: dict[tuple[str, int, int], Started] = {}
        """Collectives that not all members have joined, by primitive, class of groups and occurrence."""
        self._numbers: dict[tuple[str, int], int] = {}
        is_async = simulation.ps is not None and not simulation.ps.is_synchronous
        self.warm_up = _WARM_UP["ps" if is_async else "collective"]
        self.num_steps = self.warm_up + simulation.cycle * (_MEASURED_ASYNC if is_async else 1)
        self._ready: deque[Actor] = deque()
        self._is_resuming = False
        has_transport = simulation.ps is not None and simulation.ps.takes_cores
        self.shares_cores = simulation.costs.shares_cores or has_transport
        self.servers = None if simulation.ps is None else self._servers(simulation.ps)

    def _actor(self, number: int, generator: np.random.Generator | None) -> Actor:
        classes, placement = self.simulation.classes, self.simulation.placement
        ranks, schedule = classes.ranks[number], self.simulation.schedules[number]
        host = int(placement.host_of[ranks[0]])
        on_host = int(np.count_nonzero(placement.host_of[ranks] == host))
        synchronizes = bool(schedule.lowered) or (schedule.ps is not None and schedule.ps.is_synchronous)
        draws = None if generator is None else Draws(generator, len(ranks) if synchronizes else 1)
        cores = self.resources["cores", int(classes.of_host[host])]
        threads = float(on_host * placement.hosts[host].threads)
        return Actor(number, schedule, schedule.durations(draws), cores, threads)

    def _servers(self, setup: PsSetup) -> Servers:
        topology = self.simulation.placement.topology
        classes, host_of = self.simulation.classes, self.simulation.placement.host_of
        workers = []
        for actor in self.actors:
            ranks = classes.ranks[actor.number]
            host_class = classes.host_class(actor.number, host_of)
            on_host = int(np.count_nonzero(host_of[ranks] == host_of[ranks[0]]))
            link = topology.links[self.simulation.placement.hosts[int(host_of[ranks[0]])].link]
            tx, rx = self.resources["tx", host_class], self.resources["rx", host_class]
            workers.append(WorkerLinks(tx, rx, link, on_host, len(ranks), actor.cores))
        server_link = topology.links[setup.link or topology.hosts[0].link]
        servers = Servers(self.clock, setup, server_link, workers)
        self.resources["server_tx", 0], self.resources["server_rx", 0] = servers.tx, servers.rx
        if servers.cores is not None:
            self.resources["server_cores", 0] = servers.cores
        return servers

    def run(self) -> Simulated:
        is_async = self.simulation.ps is not None and not self.simulation.ps.is_synchronous
        for actor in self.actors:
            if is_async and actor.number:
                self._resume_later(actor)
            else:
                self._resume(actor)
        self.clock.run()
        for actor in self.actors:
            assert len(actor.step_ends) == self.num_steps, f"class {actor.number} is blocked: deadlock"
        return Simulated(self.actors, self.resources, self.warm_up, self.clock.num_events)

    def _resume_later(self, actor: Actor) -> None:
        """Start an asynchronous worker with an offset: workers start at different times, and nothing aligns them."""
        trace, size = actor.schedule.trace, len(self.actors)
        assert self.servers is not None, actor
        sent = sum(request.sent_bytes + request.received_bytes for request in trace.requests)
        alone = trace.busy_ms / 1e3 + sent / self.servers.workers[actor.number].link.bytes_per_s
        delay = alone * actor.number / size
        self.clock.begin(Activity("offset", "delay", delay, done=lambda _: self._resume(actor)))

    # --- main threads ---------------------------------------------------------------------------------

    def _resume(self, actor: Actor) -> None:
        """Let an actor run on; those that it unblocks follow, without recursion."""
        self._ready.append(actor)
        if self._is_resuming:
            return
        self._is_resuming = True
        while self._ready:
            self._run_ops(self._ready.popleft())
        self._is_resuming = False

    def _run_ops(self, actor: Actor) -> None:
        while actor.step < self.num_steps or actor.place < len(actor.ops):
            if actor.place == len(actor.ops):
                self._next_step(actor)
                continue
            op, seconds = actor.ops[actor.place], actor.seconds[actor.place]
            if op.kind == "compute":
                if seconds > 0:
                    self._compute(actor, op, seconds)
                    return
                actor.spans.append(ComputeSpan(actor.step, op, self.clock.now, self.clock.now))
            elif op.kind == "start":
                self._start(actor, op)
            elif self._waits(actor, op):
                return
            self._finish_op(actor)

    def _next_step(self, actor: Actor) -> None:
        actor.step += 1
        actor.place = 0
        actor.ops = actor.schedule.ops(actor.step)
        actor.seconds = actor.durations.of(actor.ops)
        actor.exposed.append(0.0)
        if not actor.ops:  # no node is due in this step
            actor.step_ends.append(self.clock.now)

    def _finish_op(self, actor: Actor) -> None:
        actor.place += 1
        if actor.place == len(actor.ops):
            actor.step_ends.append(self.clock.now)

    def _compute(self, actor: Actor, op: Op, seconds: float) -> None:
        def done(activity: Activity) -> None:
            actor.spans.append(ComputeSpan(actor.step, op, activity.began, activity.ended))
            actor.last = WorkRecord("compute", actor.number, op, activity.began, activity.ended, actor.last)
            self._finish_op(actor)
            self._resume(actor)

        activity = Activity("compute", "compute", seconds, done=done)
        if self.shares_cores:
            activity.threads = activity.thread_counts = {actor.cores: actor.num_threads}
        self.clock.begin(activity)

    def _start(self, actor: Actor, op: Op) -> None:
        target = op.target
        assert target is not None, op
        if isinstance(target, ServerRequest):
            self._send(actor, target)
            return
        group = self.simulation.classes.groups[target.group]
        group_class = group.of_rank_class.get(actor.number)
        if group_class is None:
            actor.latest.pop(target.id, None)
            return  # not in the group: another rank is the leader
        count = actor.counts[target.id] = actor.counts.get(target.id, 0) + 1
        key = (target.id, group_class, count)
        if key not in self._open:
            number = self._numbers[target.group, group_class] = (
                self._numbers.get((target.group, group_class), 0) + 1
            )
            cost = self.simulation.costs.of(target, group_class)
            self._open[key] = Started(target, group.members[group_class], number, actor.step, cost)
        started = self._open[key]
        actor.latest[target.id] = started
        actor.started.append(started)
        if target.transport == "network":
            started.joined[actor.number] = self.clock.now
            queue = actor.queues.setdefault(target.communicator, deque())
            queue.append(started)
            if len(queue) == 1:
                self._begin_if_next(started, actor.last)

    def _waits(self, actor: Actor, op: Op) -> bool:
        """True if the actor is blocked; then what it waits for resumes it."""
        target = op.target
        assert target is not None, op
        started = actor.latest.get(target.id)
        if started is None or started.ended >= 0:
            return False
        actor.blocked_since = self.clock.now
        started.waiting.append(actor)
        if isinstance(target, Primitive) and target.transport == "shm":
            started.joined[actor.number] = self.clock.now
            if len(started.joined) == len(started.members):
                self._begin(started, actor.last)
        return True

    # --- collectives ----------------------------------------------------------------------------------

    def _begin_if_next(self, started: Started, cause: WorkRecord | None) -> None:
        """Begin a collective over sockets if it is the next one on all of its ranks."""
        target = started.target
        assert isinstance(target, Primitive), target
        if len(started.joined) < len(started.members):
            return
        if all(self.actors[m].queues[target.communicator][0] is started for m in started.members):
            self._begin(started, cause)

    def _begin(self, started: Started, cause: WorkRecord | None) -> None:
        target, cost = started.target, started.cost
        assert isinstance(target, Primitive), target
        assert cost is not None, target
        started.began = self.clock.now
        kind = "network" if target.transport == "network" else "memory"
        activity = Activity(
            target.id,
            kind,
            cost.alone_s,
            {self.resources[key]: amount for key, amount in cost.takes.items()},
            cost.flow_bytes,
            {self.resources[key]: amount for key, amount in cost.threads.items()},
            {self.resources[key]: amount for key, amount in cost.thread_counts.items()},
        )

        def done(activity: Activity) -> None:
            started.ended = self.clock.now
            started.record = WorkRecord(
                kind, started.members[0], started, activity.began, activity.ended, cause, cost
            )
            if target.transport == "network":
                self._next_in_queues(started)
            self._release(started)

        activity.done = done
        self.clock.begin(activity)

    def _next_in_queues(self, started: Started) -> None:
        assert isinstance(started.target, Primitive), started.target
        following: dict[Started, None] = {}
        for member in started.members:
            queue = self.actors[member].queues[started.target.communicator]
            queue.popleft()
            if queue:
                following[queue[0]] = None
        for candidate in following:
            if candidate.began < 0:
                self._begin_if_next(candidate, started.record)

    def _release(self, started: Started) -> None:
        for actor in started.waiting:
            actor.exposed[-1] += self.clock.now - actor.blocked_since
            started.waits.setdefault(actor.number, []).append((actor.blocked_since, self.clock.now))
            if started.record is not None and self.clock.now > actor.blocked_since:
                actor.last = started.record
            self._finish_op(actor)
        waiting, started.waiting = started.waiting, []
        for actor in waiting:
            self._resume(actor)

    # --- parameter servers ----------------------------------------------------------------------------

    def _send(self, actor: Actor, request: ServerRequest) -> None:
        assert self.servers is not None, request
        count = actor.counts[request.kind] = actor.counts.get(request.kind, 0) + 1
        started = Started(request, (actor.number,), count, actor.step)
        started.joined[actor.number] = self.clock.now
        started.began = self.clock.now
        actor.latest[request.id] = started
        actor.started.append(started)

        def done(record: WorkRecord) -> None:
            started.ended, started.record = self.clock.now, record
            self._release(started)

        self.servers.send(actor.number, request, actor.step, actor.last, done)

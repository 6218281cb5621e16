"""Time, activities that progress at a rate, and the resources that they share.

An activity (a stretch of computation, a collective, a flow) has one unit of work, a rate at which it progresses when it
is alone (one over its duration), and an amount of each resource that the whole of it takes: bytes of a link or of
memory. Flows of concurrent activities share a link max-min fairly: all flows grow at the same rate until a link is full
or the flow is as fast as it is alone. Computation and the threads of communicators share the cores of a host in the
same way. Whenever an activity begins or ends, the rates of those that share a resource with it are computed again.

An activity whose latencies leave a link idle takes less than the link's capacity, so others use the rest.
"""

# SPDX-License-Identifier: Apache-2.0
import heapq
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

_TOLERANCE = 1e-9


@dataclass(eq=False)
class Resource:
    """A link in one direction, a switch's uplink, memory, or the cores of a host."""

    name: str
    kind: str
    """link, uplink, loopback, memory, cores, server."""
    capacity: float
    """Bytes per second; of cores: their number."""
    users: "dict[Activity, float]" = field(default_factory=dict)
    """Active ones, in order, with what they take of it in all; of cores: the number of threads."""
    served: float = 0.0
    """What has been taken of it so far."""


@dataclass(eq=False)
class Activity:
    """Something that takes time."""

    name: str
    kind: str
    """compute, network, memory, delay."""
    alone_s: float
    """Its duration if nothing else runs."""
    takes: dict[Resource, float] = field(default_factory=dict)
    """Bytes of links and memory."""
    flow_bytes: float = 1.0
    """Bytes of one of its flows, of which it may have many: fairness is between flows."""
    threads: dict[Resource, float] = field(default_factory=dict)
    """Cores that its threads take while it runs at full speed, by the cores of a host."""
    thread_counts: dict[Resource, float] = field(default_factory=dict)
    """The number of these threads."""
    about: Any = None
    done: Callable[["Activity"], None] | None = None
    began: float = 0.0
    ended: float = math.nan
    rate: float = 0.0
    remaining: float = 1.0
    _updated: float = 0.0
    _version: int = 0


class Clock:
    """Runs activities; `now` is in seconds."""

    def __init__(self, slows_computation: float = 0.0, slows_communication: float = 0.0) -> None:
        self.now = 0.0
        self.num_events = 0
        self._slows = (1 + slows_computation, 1 + slows_communication)
        self._heap: list[tuple[float, int, int, Activity]] = []
        self._numbers = itertools.count()
        self._dirty: dict[Activity, None] = {}
        self._touched: dict[Resource, None] = {}

    def begin(self, activity: Activity) -> None:
        """Start an activity now; its `done` is called at its end."""
        activity.began = activity._updated = self.now
        activity.remaining = 1.0
        self._attach(activity)
        self._dirty[activity] = None

    def _attach(self, activity: Activity) -> None:
        for resource, amount in activity.takes.items():
            resource.users[activity] = amount
            self._touched[resource] = None
        for resource, threads in activity.threads.items():
            resource.users[activity] = threads
            self._touched[resource] = None

    def _detach(self, activity: Activity) -> None:
        for resource in (*activity.takes, *activity.threads):
            resource.users.pop(activity, None)
            self._touched[resource] = None

    def run(self) -> None:
        """Run until nothing is active."""
        self._settle()
        while self._heap:
            time, _, version, activity = heapq.heappop(self._heap)
            if version != activity._version:
                continue
            self.num_events += 1
            self.now = max(self.now, time)
            self._advance(activity)
            activity.ended, activity.remaining = self.now, 0.0
            activity._version += 1
            self._detach(activity)
            if activity.done is not None:
                activity.done(activity)
            if not self._heap or self._heap[0][0] > self.now:
                self._settle()

    def _advance(self, activity: Activity) -> None:
        passed = self.now - activity._updated
        if passed > 0:
            work = min(activity.remaining, passed * activity.rate)
            for resource, amount in activity.takes.items():
                resource.served += amount * work
            activity.remaining -= work
        activity._updated = self.now

    def _settle(self) -> None:
        """Compute the rates of all activities that share something with what has changed."""
        if not self._dirty and not self._touched:
            return
        affected = _connected(self._dirty, self._touched)
        self._dirty, self._touched = {}, {}
        if len(affected) == 1 and not affected[0].takes and not affected[0].threads:
            rates = [1 / affected[0].alone_s if affected[0].alone_s > 0 else math.inf]
        else:
            rates = self._rates(affected)
        for activity, rate in zip(affected, rates, strict=True):
            if activity._version and activity.rate == rate:
                continue  # its end, in the heap, is still right
            self._advance(activity)
            activity.rate = rate
            activity._version += 1
            end = self.now + (activity.remaining / rate if rate < math.inf else 0.0)
            heapq.heappush(self._heap, (end, next(self._numbers), activity._version, activity))

    def _rates(self, activities: list[Activity]) -> list[float]:
        limits = [self._limit(activity) for activity in activities]
        flowing = [(a, limit) for a, limit in zip(activities, limits, strict=True) if a.takes]
        rate_of = dict(zip(activities, limits, strict=True))
        rate_of.update(_max_min(flowing))
        _share_cores(activities, rate_of)
        return [rate_of[activity] for activity in activities]

    def _limit(self, activity: Activity) -> float:
        """The rate alone, with the interference of what runs on the same cores."""
        if activity.alone_s <= 0:
            return math.inf
        factor = 1.0
        if activity.threads and self._slows != (1.0, 1.0):
            mine, other = (0, "network") if activity.kind == "compute" else (1, "compute")
            if any(user.kind == other for cores in activity.threads for user in cores.users):
                factor = self._slows[mine]
        return 1 / (activity.alone_s * factor)


def _connected(activities: Iterable[Activity], resources: Iterable[Resource]) -> list[Activity]:
    """These activities and all that share a resource with them, directly or not; always in the same order."""
    found: dict[Activity, None] = {}
    seen = dict.fromkeys(resources)
    pending = [a for a in activities if a.remaining > 0]
    pending += [a for resource in seen for a in resource.users]
    while pending:
        activity = pending.pop()
        if activity in found:
            continue
        found[activity] = None
        for resource in (*activity.takes, *activity.threads):
            if resource not in seen:
                seen[resource] = None
                pending += resource.users
    return list(found)


def _max_min(activities: list[tuple[Activity, float]]) -> dict[Activity, float]:
    """Rates of activities with flows: the level of all flows rises until a link is full or a flow at its limit."""
    rates: dict[Activity, float] = {}
    waiting = {a: limit * a.flow_bytes for a, limit in activities}  # limits in bytes per second of a flow
    left: dict[Resource, float] = {}
    weight: dict[Resource, float] = {}
    for activity in waiting:
        for resource, amount in activity.takes.items():
            left.setdefault(resource, resource.capacity)
            weight[resource] = weight.get(resource, 0.0) + amount / activity.flow_bytes
    while waiting:
        level, full = math.inf, None
        for resource, total in weight.items():
            if total > _TOLERANCE and left[resource] / total < level:
                level, full = left[resource] / total, resource
        limited = [a for a, limit in waiting.items() if limit <= level * (1 + _TOLERANCE)]
        if not limited:
            limited = [a for a in waiting if full in a.takes]
        for activity in limited:
            own = min(level, waiting.pop(activity))
            rates[activity] = own / activity.flow_bytes
            for resource, amount in activity.takes.items():
                share = amount / activity.flow_bytes
                weight[resource] -= share
                left[resource] = max(0.0, left[resource] - (share * own if own < math.inf else 0.0))
    return rates


def _share_cores(activities: list[Activity], rate_of: dict[Activity, float]) -> None:
    """Slow down what needs more core time than there is; a thread that needs less than its share gets it."""
    cores = dict.fromkeys(resource for activity in activities for resource in activity.threads)
    for resource in cores:
        needs = []
        for user in resource.users:
            rate = rate_of.get(user, user.rate)
            speed = rate * user.alone_s if rate < math.inf else 1.0
            count = user.thread_counts.get(resource, 1.0)
            needs.append((speed * user.threads[resource] / count, count, user))
        if sum(need * count for need, count, _ in needs) <= resource.capacity:
            continue
        share, left, threads = math.inf, resource.capacity, sum(count for _, count, _ in needs)
        for need, count, _ in sorted(needs, key=lambda entry: entry[0]):
            share = left / threads
            if need > share:
                break
            left, threads = left - need * count, threads - count
        for need, _, user in needs:
            if need > share and user in rate_of:
                rate_of[user] *= share / need

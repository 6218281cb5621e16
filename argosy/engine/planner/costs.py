"""The activity of a primitive on a class of process groups: its duration alone, and what it takes of each resource.

    over sockets    rounds · latency + messages · message time + the larger of serial bytes / bandwidth and core time
    shared memory   barriers · barrier time + touched bytes / memory bandwidth of a rank

Resources are those of one host of each class: what all groups of the class take of it.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from argosy.engine.planner.fluid import Resource
from argosy.engine.planner.groups import Ints, Placement
from argosy.engine.planner.lowering import Primitive
from argosy.engine.planner.patterns import Floats, Pattern, barrier_rounds, pattern, shared_work
from argosy.engine.planner.symmetry import Classes
from argosy.engine.planner.topology import Link

Key = tuple[str, int]
"""A resource: tx, rx, loopback, memory or cores of a class of hosts; up or down of a class of switches."""


@dataclass(frozen=True)
class Cost:
    """What an activity takes, independent of a run of the simulation."""

    alone_s: float
    takes: dict[Key, float] = field(default_factory=dict)
    flow_bytes: float = 1.0
    threads: dict[Key, float] = field(default_factory=dict)
    """Core seconds per second, by the cores of a class of hosts."""
    thread_counts: dict[Key, float] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds of `alone_s` by cause: latency, messages, bandwidth, barriers, memory, measured."""
    bottleneck: str = ""
    """The name of the link that limits it."""
    wire_bytes: float = 0.0
    """Bytes between hosts, of all groups of the class."""


class Costs:
    """The costs of all primitives on one placement."""

    def __init__(self, placement: Placement, classes: Classes) -> None:
        self.placement, self.classes = placement, classes
        self._memo: dict[tuple[object, ...], Cost] = {}
        topology = placement.topology
        hosts = placement.hosts
        self._links = [topology.links[kind.link] for kind in hosts]
        self._names = [kind.link for kind in hosts]
        self._bandwidth = np.array([link.bytes_per_s for link in self._links])
        self._latency = np.array([link.latency_us for link in self._links]) / 1e6
        self._message = np.array([link.message_us for link in self._links]) / 1e6
        self._cpu = np.array([link.cpu_s_per_gb for link in self._links]) / 1e9
        self._uplink = self._uplinks()
        self.shares_cores = self._may_share_cores()

    def _uplinks(self) -> Floats:
        """By switch, the bytes per second of its uplink."""
        switch, switch_of = self.placement.topology.switch, self.placement.switch_of
        sums = np.bincount(switch_of, weights=self._bandwidth)
        return sums / (switch.oversubscription if switch else 1.0)

    def _may_share_cores(self) -> bool:
        topology = self.placement.topology
        interference = topology.interference
        links: Iterable[Link] = (*topology.links.values(), topology.loopback)
        return (
            interference.computation > 0
            or interference.communication > 0
            or any(link.cpu_s_per_gb for link in links)
            or any(kind.ranks * kind.threads > kind.cores for kind in topology.hosts)
        )

    def resources(self) -> dict[Key, Resource]:
        """The resources of one host of each class, and of one switch."""
        topology, found = self.placement.topology, dict[Key, Resource]()
        for host_class in range(int(self.classes.of_host.max()) + 1):
            host = int(np.flatnonzero(self.classes.of_host == host_class)[0])
            kind, name = self.placement.hosts[host], self._names[host]
            rate = float(self._bandwidth[host])
            for direction in ("tx", "rx"):
                found[direction, host_class] = Resource(f"{name} {direction} of host {host}", "link", rate)
            found["loopback", host_class] = Resource(
                f"loopback of host {host}", "loopback", topology.loopback.bytes_per_s
            )
            if topology.shared_memory is not None:
                memory_rate = topology.shared_memory.host_gb_per_s * 1e9
                found["memory", host_class] = Resource(f"memory of host {host}", "memory", memory_rate)
            found["cores", host_class] = Resource(f"cores of host {host}", "cores", kind.cores)
        for switch_class in range(int(self.classes.of_switch.max()) + 1):
            number = int(np.flatnonzero(self.classes.of_switch == switch_class)[0])
            for direction in ("up", "down"):
                found[direction, switch_class] = Resource(
                    f"switch {number} {direction}", "uplink", float(self._uplink[number])
                )
        return found

    def of(self, primitive: Primitive, group_class: int) -> Cost:
        """The cost of a primitive on a class of the groups of its name."""
        one = primitive.collective
        sizes = (primitive.nbytes, primitive.ms)
        key = (primitive.kind, primitive.group, group_class, *sizes, one.algorithm, one.is_flat)
        if key not in self._memo:
            self._memo[key] = self._cost(primitive, self.classes.groups[primitive.group].rows[group_class])
        return self._memo[key]

    def _cost(self, primitive: Primitive, rows: Ints) -> Cost:
        if primitive.ms is not None:
            seconds = primitive.ms / 1e3
            return Cost(seconds, parts={"measured": seconds}, bottleneck=primitive.group)
        if primitive.transport == "shm":
            return self._shared(primitive, rows)
        algorithm = primitive.collective.algorithm
        messages = pattern(primitive.kind, algorithm, rows.shape[1], primitive.nbytes)
        return self._sockets(messages, rows)

    def _shared(self, primitive: Primitive, rows: Ints) -> Cost:
        memory = self.placement.topology.shared_memory
        assert memory is not None, primitive.id
        size = rows.shape[1]
        work = shared_work(primitive.kind, size, primitive.nbytes, primitive.collective.is_flat)
        barriers = work.barriers * barrier_rounds(size) * memory.barrier_us / 1e6
        touching = work.touched / (memory.gb_per_s * 1e9)
        hosts = self.placement.host_of[rows[:, 0]]
        counts = np.bincount(hosts, minlength=len(self.placement.hosts)).astype(np.float64) * size
        members = self._by_host_class(counts)
        takes = {("memory", h): n * work.touched for h, n in members.items() if work.touched}
        threads = {("cores", h): n for h, n in members.items()} if self.shares_cores else {}
        return Cost(
            barriers + touching,
            takes,
            max(work.touched, 1.0),
            threads,
            dict(threads),
            {"barriers": barriers, "memory": touching},
            "shared memory",
        )

    def _sockets(self, messages: Pattern, rows: Ints) -> Cost:
        flows = _Flows(self.placement, messages, rows)
        latency, per_message, bandwidth, name = self._path(flows)
        fixed = {"latency": messages.rounds * latency, "messages": messages.messages * per_message}
        busiest = self._busiest(_Flows(self.placement, messages, rows[:1]))
        transfer = max(messages.serial_bytes / bandwidth, busiest)
        core_s, per_host, counts = self._core_time(messages, rows)
        alone = sum(fixed.values()) + max(transfer, core_s)
        takes = self._takes(flows)
        threads: dict[Key, float] = {}
        thread_counts: dict[Key, float] = {}
        if self.shares_cores and alone > 0:
            threads = {("cores", h): s / alone for h, s in self._by_host_class(per_host).items()}
            members = self._by_host_class(counts)
            threads |= {("cores", h): 0.0 for h in members if ("cores", h) not in threads}
            thread_counts = {("cores", h): n for h, n in members.items()}
        flow = float(messages.nbytes.max()) if len(messages.nbytes) else 1.0
        return Cost(
            alone,
            takes,
            max(flow, 1e-9),
            threads,
            thread_counts,
            {**fixed, "bandwidth": max(transfer, core_s)},
            name,
            float(flows.between()[0].sum()),
        )

    def _path(self, flows: "_Flows") -> tuple[float, float, float, str]:
        """Latency and message time of the slowest pair of ranks, and bandwidth and name of the slowest link."""
        topology = self.placement.topology
        loopback = topology.loopback
        inside = not flows.is_between.all()
        latency = loopback.latency_us / 1e6 if inside else 0.0
        per_message = loopback.message_us / 1e6 if inside else 0.0
        bandwidth, name = (loopback.bytes_per_s, "loopback") if inside else (np.inf, "")
        if flows.is_between.any():
            src, dst = flows.senders[flows.is_between], flows.receivers[flows.is_between]
            other = self.placement.switch_of[src] != self.placement.switch_of[dst]
            extra = topology.switch.latency_us / 1e6 if topology.switch and other.any() else 0.0
            latencies = np.maximum(self._latency[src], self._latency[dst]) + extra * other
            latency = max(latency, float(latencies.max()))
            per_message = max(per_message, float(np.maximum(self._message[src], self._message[dst]).max()))
            ends = np.concatenate([src, dst])
            slowest = int(ends[np.argmin(self._bandwidth[ends])])
            if self._bandwidth[slowest] < bandwidth:
                bandwidth, name = float(self._bandwidth[slowest]), self._names[slowest]
            if other.any():
                uplinks = self._uplink[self.placement.switch_of[np.concatenate([src[other], dst[other]])]]
                if uplinks.min() < bandwidth:
                    bandwidth, name = float(uplinks.min()), "the uplink of a switch"
        return latency, per_message, bandwidth, name or "loopback"

    def _busiest(self, flows: "_Flows") -> float:
        """Seconds of the busiest link, if one group is alone."""
        between, up = flows.between(), flows.between_switches()
        link = max(float((nbytes / self._bandwidth).max()) for nbytes in between)
        uplink = max(float((nbytes / self._uplink).max()) for nbytes in up)
        inside = float(flows.inside().max()) / self.placement.topology.loopback.bytes_per_s
        return max(link, uplink, inside)

    def _takes(self, flows: "_Flows") -> dict[Key, float]:
        takes: dict[Key, float] = {}
        for key, nbytes in zip(("tx", "rx"), flows.between(), strict=True):
            takes |= {(key, h): n for h, n in self._by_host_class(nbytes).items()}
        takes |= {("loopback", h): n for h, n in self._by_host_class(flows.inside()).items()}
        if self.placement.topology.switch is not None:
            for key, nbytes in zip(("up", "down"), flows.between_switches(), strict=True):
                takes |= {(key, s): n for s, n in _by_class(nbytes, self.classes.of_switch).items()}
        return takes

    def _core_time(self, messages: Pattern, rows: Ints) -> tuple[float, Floats, Floats]:
        """Core seconds of the busiest rank; of each host; and threads of each host."""
        size, num_hosts = rows.shape[1], len(self.placement.hosts)
        sent, received = (
            np.bincount(ranks, weights=messages.nbytes, minlength=size)
            for ranks in (messages.senders, messages.receivers)
        )
        handled: Floats = (sent + received) / 2 + messages.pair_bytes * (size - 1)
        hosts = self.placement.host_of[rows]
        spans_hosts = bool((hosts != hosts[:, :1]).any())
        rate = self._cpu[hosts] if spans_hosts else self.placement.topology.loopback.cpu_s_per_gb / 1e9
        seconds = np.broadcast_to(rate * handled[None, :], hosts.shape)
        per_host = np.bincount(hosts.reshape(-1), weights=seconds.reshape(-1), minlength=num_hosts)
        counts = np.bincount(hosts.reshape(-1), minlength=num_hosts).astype(np.float64)
        return float(seconds.max()), per_host.astype(np.float64), counts

    def _by_host_class(self, values: npt.NDArray[np.float64]) -> dict[int, float]:
        return _by_class(values, self.classes.of_host)


class _Flows:
    """The messages of all groups of a class, between hosts."""

    def __init__(self, placement: Placement, messages: Pattern, rows: Ints) -> None:
        self._switch_of, self._num_hosts = placement.switch_of, len(placement.hosts)
        self._hosts = placement.host_of[rows]
        self.senders = self._hosts[:, messages.senders].reshape(-1)
        self.receivers = self._hosts[:, messages.receivers].reshape(-1)
        self._nbytes = np.tile(messages.nbytes, len(rows))
        self._pair_bytes = messages.pair_bytes
        self.is_between = self.senders != self.receivers

    def between(self) -> tuple[Floats, Floats]:
        """By host: bytes sent to other hosts, bytes received from them."""
        return self._crossing(self.senders, self.receivers, self._hosts, self._num_hosts)

    def between_switches(self) -> tuple[Floats, Floats]:
        """By switch: bytes sent to hosts of other switches, bytes received from them."""
        of, count = self._switch_of, int(self._switch_of[-1]) + 1
        return self._crossing(of[self.senders], of[self.receivers], of[self._hosts], count)

    def inside(self) -> Floats:
        """By host: bytes between its ranks."""
        members = self._members(self._hosts, self._num_hosts)
        pairs = (members * (members - 1)).sum(axis=0) if self._pair_bytes else 0.0
        return self._sums(self.senders, ~self.is_between, self._num_hosts) + pairs * self._pair_bytes

    def _crossing(self, src: Ints, dst: Ints, of_member: Ints, count: int) -> tuple[Floats, Floats]:
        members = self._members(of_member, count)
        pairs = (members * (of_member.shape[1] - members)).sum(axis=0) if self._pair_bytes else 0.0
        extra = pairs * self._pair_bytes
        return self._sums(src, src != dst, count) + extra, self._sums(dst, src != dst, count) + extra

    def _members(self, of_member: Ints, count: int) -> Floats:
        """By group and place, how many members are there; only needed for messages between all pairs."""
        if not self._pair_bytes:
            return np.zeros((1, count))
        counts = [np.bincount(row, minlength=count) for row in of_member]
        return np.array(counts, dtype=np.float64)

    def _sums(self, place: Ints, mask: npt.NDArray[np.bool_], count: int) -> Floats:
        return np.bincount(place[mask], weights=self._nbytes[mask], minlength=count).astype(np.float64)


def _by_class(values: Floats, of: Ints) -> dict[int, float]:
    """The largest value of each class, without zeros."""
    largest = np.zeros(int(of.max()) + 1)
    np.maximum.at(largest, of, values)
    return {number: float(value) for number, value in enumerate(largest) if value > 0}

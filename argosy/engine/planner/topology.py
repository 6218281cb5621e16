"""The cluster: hosts, the links between them, switches, memory that ranks of a host share. A TOML file.

    version = 1
    [[hosts]]                       hosts of one kind, in the order of their ranks; several entries: several kinds
    count = 16
    cores = 8
    ranks = 4
    link = "ethernet"
    [links.ethernet]                from a host to its switch, the same in both directions
    gbit_per_s = 10
    latency_us = 30                 of a message from one host to another
    [switch]                        groups of hosts; without it: one switch that is never a bottleneck
    hosts = 16
    oversubscription = 4            the hosts' links together, over the uplink
    [shared_memory]  [loopback]  [interference]  [[stragglers]]

It is written by hand, for a cluster that need not exist, or by a probe.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass, field, replace
from pathlib import Path

from argosy.engine.errors import ConfigError
from argosy.engine.planner.data_files import (
    check,
    from_data,
    is_time,
    read_toml,
    to_data,
    toml_text,
    write_text,
)

VERSION = 1
MAX_RANKS = 1 << 20


@dataclass(frozen=True)
class Link:
    """A link of a host. Payload, not line rate: TCP over 1 Gbit/s Ethernet has 0.94 Gbit/s."""

    gbit_per_s: float
    latency_us: float = 0.0
    """One way, from a host to another one through their links and a switch."""
    message_us: float = 0.0
    """Time per message in the communicator's thread, in addition."""
    cpu_s_per_gb: float = 0.0
    """Core seconds of a rank per GB that it sends and receives, for copies, sums and the kernel."""

    def __post_init__(self) -> None:
        check(self.gbit_per_s > 0, f"a link has gbit_per_s = {self.gbit_per_s}; use a number above 0")
        for key in ("latency_us", "message_us", "cpu_s_per_gb"):
            check(is_time(getattr(self, key)), f"a link has {key} = {getattr(self, key)}; use 0 or more")

    @property
    def bytes_per_s(self) -> float:
        return self.gbit_per_s * 1e9 / 8


@dataclass(frozen=True)
class SharedMemory:
    """Collectives inside a host, on the cores of the ranks."""

    gb_per_s: float = 8.0
    """Bytes that one rank reads and writes per second in a sum, alone."""
    host_gb_per_s: float = 1e6
    """Of all ranks of a host together: memory bandwidth."""
    barrier_us: float = 3.0
    """A barrier of up to 8 ranks; more ranks have one of these per round (shm_collectives.py)."""

    def __post_init__(self) -> None:
        for key in ("gb_per_s", "host_gb_per_s"):
            check(
                getattr(self, key) > 0,
                f"shared_memory has {key} = {getattr(self, key)}; use a number above 0",
            )
        check(is_time(self.barrier_us), f"shared_memory has barrier_us = {self.barrier_us}; use 0 or more")


@dataclass(frozen=True)
class Switch:
    """Switches of the first level, each with so many consecutive hosts; the level above is not a bottleneck."""

    hosts: int
    oversubscription: float = 1.0
    """The sum of its hosts' links, divided by its uplink."""
    latency_us: float = 0.0
    """In addition, between hosts of two switches."""

    def __post_init__(self) -> None:
        check(self.hosts >= 1, f"switch.hosts is {self.hosts}; use 1 or more")
        check(
            self.oversubscription > 0,
            f"switch.oversubscription is {self.oversubscription}; use a number above 0",
        )
        check(is_time(self.latency_us), f"switch.latency_us is {self.latency_us}; use 0 or more")


@dataclass(frozen=True)
class Interference:
    """How computation and communication slow each other down on the same cores, beyond sharing core time."""

    computation: float = 0.0
    """0.1: computation takes 1.1 times as long while a collective of this host is on the network."""
    communication: float = 0.0
    """The same for collectives while a rank of the host computes."""

    def __post_init__(self) -> None:
        for key in ("computation", "communication"):
            check(is_time(getattr(self, key)), f"interference.{key} is {getattr(self, key)}; use 0 or more")


@dataclass(frozen=True)
class HostKind:
    """Consecutive hosts of one kind."""

    link: str
    count: int = 1
    cores: int = 1
    ranks: int = 1
    threads: int = 1
    """Cores that a rank computes with: OMP_NUM_THREADS."""
    speed: float = 1.0
    """How fast it computes, relative to the machine of the trace."""

    def __post_init__(self) -> None:
        for key in ("count", "cores", "ranks", "threads"):
            check(getattr(self, key) >= 1, f"hosts have {key} = {getattr(self, key)}; use 1 or more")
        check(self.speed > 0, f"hosts have speed = {self.speed}; use a number above 0")


@dataclass(frozen=True)
class Straggler:
    """A rank whose computation is slower."""

    rank: int
    slowdown: float

    def __post_init__(self) -> None:
        check(self.rank >= 0, f"a straggler has rank {self.rank}; use 0 or more")
        check(self.slowdown > 0, f"straggler {self.rank} has slowdown {self.slowdown}; use a number above 0")


@dataclass(frozen=True)
class Topology:
    """A cluster with the ranks of a job, numbered host by host."""

    hosts: tuple[HostKind, ...]
    links: dict[str, Link]
    loopback: Link = field(default_factory=lambda: Link(80.0, latency_us=15.0))
    """Sockets between ranks of one host: in groups that span hosts, and without shared memory."""
    shared_memory: SharedMemory | None = field(default_factory=SharedMemory)
    """None (has_shared_memory = false in the file): ranks of a host use sockets."""
    switch: Switch | None = None
    interference: Interference = field(default_factory=Interference)
    stragglers: tuple[Straggler, ...] = ()
    name: str = ""

    def __post_init__(self) -> None:
        check(bool(self.hosts), "a topology without hosts; add a table [[hosts]]")
        for kind in self.hosts:
            if kind.link not in self.links:
                raise ConfigError(
                    f"hosts have the link {kind.link!r}, which is not described (known: "
                    f"{', '.join(self.links) or 'none'}); add a table [links.{kind.link}]"
                )
        check(self.num_ranks <= MAX_RANKS, f"{self.num_ranks} ranks; at most {MAX_RANKS} can be simulated")
        for straggler in self.stragglers:
            check(
                straggler.rank < self.num_ranks,
                f"straggler {straggler.rank} is not a rank: there are {self.num_ranks}; use 0 to {self.num_ranks - 1}",
            )

    @property
    def num_hosts(self) -> int:
        return sum(kind.count for kind in self.hosts)

    @property
    def num_ranks(self) -> int:
        return sum(kind.count * kind.ranks for kind in self.hosts)

    def expanded(self) -> list[HostKind]:
        """The kind of every host, in order."""
        return [kind for kind in self.hosts for _ in range(kind.count)]

    def with_ranks_per_host(self, ranks: int) -> "Topology":
        """The same hosts with another number of ranks each."""
        check(ranks >= 1, f"{ranks} ranks per host; use 1 or more")
        return replace(self, hosts=tuple(replace(kind, ranks=ranks) for kind in self.hosts))

    def to_toml(self) -> str:
        """The content of a file."""
        content = to_data(replace(self, shared_memory=self.shared_memory or SharedMemory()), VERSION)
        if self.shared_memory is None:
            content["has_shared_memory"] = False
        return toml_text(content)

    def write(self, path: Path) -> None:
        """Write the file atomically."""
        write_text(path, self.to_toml())


def topology_from(content: dict[str, object], where: str) -> Topology:
    """The topology of a file's content."""
    rest = {key: value for key, value in content.items() if key != "has_shared_memory"}
    has_shared_memory = content.get("has_shared_memory", True)
    check(
        isinstance(has_shared_memory, bool), f"{where}: has_shared_memory is not a boolean; use true or false"
    )
    topology = from_data(Topology, rest, where, VERSION)
    return topology if has_shared_memory else replace(topology, shared_memory=None)


def read_topology(path: Path) -> Topology:
    """Read cluster.toml."""
    return topology_from(read_toml(path, "cluster description"), str(path))

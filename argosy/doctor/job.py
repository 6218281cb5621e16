"""What a rank of the doctor's job does, in order; afterwards every rank has the results of all.

    host checks ──▶ connect ──▶ products ──▶ shared memory ──▶ links ──▶ gloo ──▶ gather

A step that needs other ranks and fails is a failure in the report, and no further step of that kind follows.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from argosy.doctor import cgroup, cpu, disk, leftovers, limits, memory, network, report, software
from argosy.doctor.check import Check, decode, encode, guarded
from argosy.doctor.links import (
    MeasuredLink,
    better,
    clocks,
    judge,
    rounds,
    suspects,
)
from argosy.doctor.tcp import LinkServer
from argosy.doctor.tournament import address_of, listed_address, tournament
from argosy.engine import collective, env
from argosy.engine.collective import Identity, World
from argosy.engine.collective.identity import read
from argosy.engine.errors import ArgosyError, CollectiveError
from argosy.engine.net import Endpoint, host_of, interface_of

CONNECT_S = 60.0
"""How long hosts that are started by hand may take; ARGOSY_CONNECT_TIMEOUT_S is another one."""
T = TypeVar("T")


@dataclass
class Results:
    """All checks of the job, as far as this rank knows them."""

    hosts: list[str] = field(default_factory=list)
    """Names of the hosts, in the order of their ranks."""
    checks: list[Check] = field(default_factory=list)


def run(directory: str) -> Results:
    """All checks; every rank of the job calls it."""
    identity = read()
    job = _Job(identity, directory)
    return job.run()


class _Lost(Exception):
    """Other ranks are lost: what needs them cannot be checked."""


class _Job:
    def __init__(self, identity: Identity, directory: str) -> None:
        self._identity, self._directory = identity, directory
        self._world: World | None = None
        self._num_gathers = 0
        self._own: list[Check] = []
        """Checks of this host; only its first rank has them."""
        self._common: list[Check] = []
        """Checks of several hosts or ranks; every rank has all of them."""
        self._by_host: list[list[Check]] = []
        self._names: list[str] = [self._local_name()]
        self._speeds: dict[int, float] = {}

    def run(self) -> Results:
        is_first = self._identity.local_rank == 0
        if is_first:
            self._own = self._host_checks()
        self._by_host = [self._own]
        try:
            if self._identity.size > 1:
                self._connect()
            self._products()
            if self._identity.size > 1:
                self._collectives()
        except _Lost:
            pass
        named = [
            replace(check, where=self._names[host]) for host, own in enumerate(self._by_host) for check in own
        ]
        return Results(self._names, [*named, *report.compare_hosts(named), *self._common])

    # --- this host ------------------------------------------------------------------------------------

    def _host_checks(self) -> list[Check]:
        here, size = self._identity.local_size, self._identity.size
        limit = cgroup.read()
        address = address_of(self._identity)
        listed = listed_address(self._identity)
        in_use = {Endpoint.parse(e).port for e in self._identity.endpoints if host_of(e) == listed}
        groups: dict[str, Callable[[], Sequence[Check]]] = {
            "software": software.check,
            "cores": lambda: cpu.check(limit, here, _threads()),
            "memory": lambda: memory.check(limit, here),
            "limits": lambda: limits.check(limit, here, size),
            "network": lambda: network.check(address, here, in_use),
            "disk": lambda: disk.check(self._directory),
            "leftovers": leftovers.check,
        }
        return [check for name, group in groups.items() for check in guarded(name, group)]

    def _local_name(self) -> str:
        """Until the ranks are connected: the address, if the job has several hosts, else the name."""
        several = self._identity.local_size < self._identity.size
        return listed_address(self._identity) if several else socket.gethostname()

    # --- all ranks ------------------------------------------------------------------------------------

    def _connect(self) -> None:
        """Connect, and share the checks of the hosts; failing hosts are named."""
        world = None
        try:
            timeout_s = env.seconds("ARGOSY_CONNECT_TIMEOUT_S", CONNECT_S)
            self._world = world = collective.connect(timeout_s=timeout_s)
            texts = self._gather("hello", f"{listed_address(self._identity)} {socket.gethostname()}")
        except ArgosyError as e:
            missing = sorted(world.monitor.unconnected) if world is not None else list(_blamed(e))
            self._common.append(self._unreachable(missing, e))
            raise _Lost from e
        hosts = world.hosts()
        self._leaders = [hosts.index(host) for host in dict.fromkeys(hosts)]
        self._host_of = [list(dict.fromkeys(hosts)).index(host) for host in hosts]
        addresses, names = zip(*(texts[leader].split() for leader in self._leaders), strict=True)
        self._names = list(names if len(set(names)) == len(names) else addresses)  # clones have one name
        is_first = world.rank in self._leaders
        if is_first and not self._own:  # the launcher did not say which rank is the first here
            self._own = self._host_checks()
        speed = network.link_speed(interface_of(address_of(self._identity)) or "")
        shared = self._gather("hosts", json.dumps([encode(self._own if is_first else []), speed]))
        self._by_host = [decode(json.loads(shared[leader])[0]) for leader in self._leaders]
        speeds = [json.loads(shared[leader])[1] for leader in self._leaders]
        self._speeds = {host: float(speed) for host, speed in enumerate(speeds) if speed}

    def _unreachable(self, missing: Sequence[int], error: ArgosyError) -> Check:
        endpoints = self._identity.endpoints
        names = sorted({host_of(endpoints[rank]) if endpoints else f"rank {rank}" for rank in missing})
        return Check(
            "rendezvous",
            "failure",
            " ".join(str(error).split()),
            "start the same command on every host, with the same list of hosts; check routes and firewalls",
            where=", ".join(names) or "all hosts",
        )

    def _gather(self, what: str, value: str = "") -> list[str]:
        """Gather a text from every rank; also a barrier."""
        assert self._world is not None, what
        self._num_gathers += 1
        return self._world.all_gather_object(f"doctor{self._num_gathers}#1 ({what})", value)

    def _together(self, name: str, step: Callable[[], T]) -> T:
        """A step of all ranks; if it fails, so do those that follow."""
        try:
            return step()
        except _Lost:
            raise
        except Exception as e:
            text = f"{type(e).__name__}: {' '.join(str(e).split())}"
            names = {self._names[self._host_of[rank]] for rank in _blamed(e)} if self._world else set()
            self._common.append(
                Check(name, "failure", text, "see the logs of that rank", where=", ".join(sorted(names)))
            )
            raise _Lost from e

    def _products(self) -> None:
        def measure_all() -> list[Check]:
            import torch

            from argosy.doctor import compute

            if self._world is not None:
                self._gather("products")
            rates = [compute.gflops(dtype) for dtype in (torch.float32, torch.bfloat16)]
            texts = self._gather("GFLOPS", json.dumps(rates)) if self._world else [json.dumps(rates)]
            float32, bfloat16 = zip(*map(json.loads, texts), strict=True)
            return compute.judge(float32, bfloat16, [self._rank_name(rank) for rank in range(len(texts))])

        self._common += self._together("product", measure_all)

    def _rank_name(self, rank: int) -> str:
        host = self._names[self._host_of[rank]] if self._world else self._names[0]
        return f"rank {rank}, {host}" if len(self._names) > 1 else f"rank {rank}"

    def _collectives(self) -> None:
        self._together("shared-memory all-reduce", self._shm)
        link = self._together("links", self._links)
        self._together("gloo all-reduce", lambda: self._gloo(link))

    def _shm(self) -> None:
        from argosy.doctor import collectives, compute

        world = self._world
        assert world is not None, "connected"
        counts = {self._host_of.count(host) for host in range(len(self._names))}
        if len(counts) > 1:
            self._common.append(
                Check(
                    "shared-memory all-reduce",
                    "warning",
                    f"not measured: the hosts have {' or '.join(map(str, sorted(counts)))} ranks",
                    "start as many ranks on every host",
                    where="all hosts",
                )
            )
            return
        group = "dp" if len(self._names) == 1 else f"dp/intra{counts.pop()}"
        self._gather("copies")
        check = collectives.shm_all_reduce(world, group, compute.copy_rate())
        texts = self._gather("shared memory", encode([check]))
        self._common += [
            replace(decode(texts[leader])[0], where=self._names[host])
            for host, leader in enumerate(self._leaders)
        ]

    def _links(self) -> float:
        """Measure all links; returns the bits per second of the slowest, or of loopback if there is one host."""
        world = self._world
        assert world is not None, "connected"
        # On one host: between its first two ranks. On several: between the first ranks of the hosts.
        ends = self._leaders if len(self._leaders) > 1 else [0, 1]
        address = address_of(self._identity)
        with LinkServer(address) as server:
            offers = self._gather("link servers", server.offer)
            links = self._tournament(ends, rounds(len(ends)), offers, address)
            if len(self._leaders) == 1:
                return self._loopback(links)
            pairs = suspects(links, self._speeds)
            again = self._tournament(ends, [[pair] for pair in pairs], offers, address)
            links = better(links, again)
            self._gather("links are measured")  # before any server is closed
        self._common += judge(links, self._names, self._speeds) + clocks(links, self._names)
        if any(link.error for link in links):
            raise _Lost  # the links are in the report; an all-reduce would wait for its timeout
        return min(link.bits_per_s for link in links)

    def _tournament(
        self,
        ends: Sequence[int],
        schedule: Sequence[Sequence[tuple[int, int]]],
        offers: Sequence[str],
        source: str,
    ) -> list[MeasuredLink]:
        assert self._world is not None, "connected"

        def gather(what: str, value: object) -> list[object]:
            return [json.loads(text) for text in self._gather(what, json.dumps(value))]

        return tournament(gather, self._world.rank, ends, schedule, offers, source)

    def _loopback(self, links: Sequence[MeasuredLink]) -> float:
        link = links[0]
        self._gather("loopback is measured")
        if link.error:
            raise CollectiveError(f"the ranks of this host do not reach each other: {link.error}")
        return min(link.bits_per_s for link in links)

    def _gloo(self, link: float) -> None:
        from argosy.doctor import collectives

        assert self._world is not None, "connected"
        check = collectives.gloo_all_reduce(self._world, link)
        first = decode(self._gather("gloo", encode([check]))[0])[0]
        where = self._names[0] if len(self._names) == 1 else "all hosts"
        self._common.append(replace(first, where=where))


def _blamed(error: BaseException) -> tuple[int, ...]:
    return tuple(getattr(error, "ranks", ()))


def _threads() -> int:
    """Threads of every rank: OMP_NUM_THREADS, which fleetrun sets."""
    import torch

    return torch.get_num_threads()

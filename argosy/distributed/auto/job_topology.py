"""The topology of the running job: its hosts and ranks, with figures from a probe's file, or measured by the ranks.

The ranks measure with a few all-reduces of their own process groups: a small one for the latency, and one that takes
some 20 ms for the bandwidth. The constants are those with which the planner predicts these times.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from argosy.engine import env
from argosy.engine.collective import World
from argosy.engine.collective.group import Group
from argosy.engine.errors import ConfigError
from argosy.engine.planner.predict_step import predict
from argosy.engine.planner.step_trace import Collective, Node, StepTrace
from argosy.engine.planner.topology import (
    HostKind,
    Link,
    SharedMemory,
    Topology,
    read_topology,
    topology_from,
)

PROBE_FILE = "cluster.toml"
"""In the cache: written by `python -m argosy.plan probe`."""
_LINK = "link"
_SMALL, _LARGE, _LARGEST = 1 << 12, 1 << 18, 1 << 24
_ENOUGH_S = 0.02
"""An all-reduce of this time shows the bandwidth."""
_REPEATS = 3
_ROUNDS = 6
"""Of the fit: the predicted time is nearly proportional to the constant."""


def described(hosts: int, ranks: int, path: str) -> Topology | None:
    """The topology of a job on the hosts of a file: the given one, or that of a probe; None without any.

    Raises ConfigError if the given file does not exist or is invalid.
    """
    file = Path(path).expanduser() if path else env.cache_dir() / PROBE_FILE
    if not path and not file.is_file():
        return None
    found = read_topology(file)
    if path and found.num_hosts != hosts:
        raise ConfigError(
            f"auto_configs['hosts'] = {path!r} describes {found.num_hosts} hosts, and the job has {hosts}; describe "
            "the hosts of this job, or leave it out"
        )
    if found.num_hosts == hosts:
        return found.with_ranks_per_host(ranks)
    kind = replace(found.hosts[0], count=hosts, ranks=ranks)
    return replace(found, hosts=(kind,), stragglers=(), switch=None)


def of_rank_0(hosts: int, path: str, world: World) -> Topology | None:
    """`described` by the files of rank 0's host: other hosts may have other files, or none. All ranks call it."""
    found = described(hosts, world.size // hosts, path) if world.rank == 0 else None
    text = "" if found is None else found.to_toml()
    gathered = world.group("util").all_gather_bytes(text.encode(), "autotune: cluster description")
    return topology_from(tomllib.loads(gathered[0].decode()), "rank 0") if gathered[0] else None


def plain(hosts: int, ranks: int) -> Topology:
    """The topology of a job whose links are not known yet; `ranks` of a host."""
    threads = torch.get_num_threads()
    cores = max(len(os.sched_getaffinity(0)), ranks * threads)  # measured node times include contention
    return Topology((HostKind(_LINK, hosts, cores, ranks, threads),), {_LINK: Link(10.0, 30.0)})


def measured(topology: Topology, world: World) -> Topology:
    """Measure link and shared memory with the groups of the job; all ranks call it together, and get the same."""
    hosts, ranks = topology.num_hosts, topology.num_ranks // topology.num_hosts
    if ranks > 1 and topology.shared_memory is not None:
        group = world.group("dp" if hosts == 1 else f"dp/intra{ranks}")
        if group.shm is not None:
            topology = _fit_memory(topology, group, world)
        else:
            topology = replace(topology, shared_memory=None)
    if hosts > 1:
        topology = _fit_link(topology, world)
    return topology


def _fit_memory(topology: Topology, group: Group, world: World) -> Topology:
    nbytes, seconds = _large(group, world)
    memory = topology.shared_memory or SharedMemory()
    for _ in range(_ROUNDS):
        candidate = replace(topology, shared_memory=memory)
        ratio = _alone_ms(candidate, nbytes, group.name, is_flat=False) / (seconds * 1e3)
        memory = replace(memory, gb_per_s=memory.gb_per_s * _bounded(ratio))
    return replace(topology, shared_memory=memory)


def _fit_link(topology: Topology, world: World) -> Topology:
    group = world.group("dp")
    small_s = _agreed(group, _SMALL, world)
    nbytes, seconds = _large(group, world)
    name = topology.hosts[0].link
    link = replace(topology.links[name], latency_us=0.0, message_us=0.0)

    def with_link(link: Link) -> Topology:
        return replace(topology, links={**topology.links, name: link})

    for _ in range(_ROUNDS):
        none, some = (
            _alone_ms(with_link(replace(link, latency_us=us)), _SMALL, group.name) for us in (0, 100)
        )
        slope = max(some - none, 1e-9) / 100
        link = replace(link, latency_us=max(1.0, (small_s * 1e3 - none) / slope))
        ratio = _alone_ms(with_link(link), nbytes, group.name) / (seconds * 1e3)
        link = replace(link, gbit_per_s=link.gbit_per_s * _bounded(ratio))
    return with_link(link)


def _bounded(ratio: float) -> float:
    return min(max(ratio, 0.05), 20.0)


def _large(group: Group, world: World) -> tuple[int, float]:
    """The bytes and seconds of an all-reduce that takes long enough."""
    nbytes = _LARGE
    while (seconds := _agreed(group, nbytes, world)) < _ENOUGH_S and nbytes < _LARGEST:
        nbytes *= 4
    return nbytes, seconds


def _agreed(group: Group, nbytes: int, world: World) -> float:
    """The median time of an all-reduce: of the slowest rank, the same on all ranks."""
    tensor = torch.zeros(nbytes // 4)

    def once() -> float:
        began = time.perf_counter()
        group.all_reduce(tensor, what="measurement of the link")
        return time.perf_counter() - began

    once()
    seconds = torch.tensor([median(once() for _ in range(_REPEATS))], dtype=torch.float64)
    world.group("util").all_reduce(seconds, "max", "measurement of the link")
    return max(float(seconds), 1e-7)


def _alone_ms(topology: Topology, nbytes: int, group: str, is_flat: bool = True) -> float:
    one = Collective("one", "all_reduce", nbytes, group, is_flat=is_flat)
    trace = StepTrace((Node("one", 0.0, actions=("start one", "wait one")),), (one,))
    return predict(trace, topology, repeats=0).nominal_ms

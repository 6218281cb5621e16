"""A rank of `python -m argosy.plan probe`: measures links, all-reduces, shared memory and interference, together.

    connect ──▶ links (the doctor's) ──▶ all-reduces over sockets ──▶ computation beside them ──▶ shared memory ──▶ fit

Rank 0 fits a topology to the measurements (engine/planner/probe_fit.py) and writes it.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import functools
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch

from argosy.distributed.auto.job_topology import PROBE_FILE
from argosy.doctor.links import rounds
from argosy.doctor.tcp import LinkServer
from argosy.doctor.tournament import address_of, tournament
from argosy.engine import collective, env
from argosy.engine.collective import World
from argosy.engine.collective.group import Group
from argosy.engine.collective.shm_collectives import add_up
from argosy.engine.collective.work import Work
from argosy.engine.errors import ConfigError
from argosy.engine.planner.probe_fit import Beside, Measurements, Pair, Sample, fit

_SIZES = (4, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
_LONGEST_S = 0.45
"""An all-reduce that would take longer than this is not measured."""
_BUDGET_S = 0.6
"""For the repeats of one size."""
_SHM_SIZES = (1 << 16, 1 << 20, 1 << 23, 1 << 25)
_BARRIERS = 300
_BESIDE = 2.5
"""For computation beside all-reduces of one size, in budgets."""
_MATRIX = 192
_numbers = itertools.count()
"""Of gathers of this process: each name is used once."""


class Probe:
    """The measurements of one rank; all ranks call the same functions in the same order."""

    def __init__(self, world: World, progress: Callable[[str], None], budget_s: float = _BUDGET_S) -> None:
        self.world, self.progress, self.budget_s = world, progress, budget_s
        hosts = world.hosts() if world.size > 1 else [""]
        self.names = list(dict.fromkeys(hosts))
        self.host_of = [self.names.index(host) for host in hosts]
        counts = {self.host_of.count(number) for number in range(len(self.names))}
        if len(counts) > 1:
            raise ConfigError(
                f"the hosts have {' or '.join(map(str, sorted(counts)))} ranks; start as many on every host"
            )
        self.ranks = counts.pop()
        """Of one host."""

    def gather(self, what: str, value: object = None) -> list[Any]:
        """A value of every rank; also a barrier."""
        if self.world.size == 1:
            return [value]
        number = next(_numbers)
        texts = self.world.all_gather_object(f"probe{number}#1 ({what})", json.dumps(value))
        return [json.loads(text) for text in texts]

    def run(self) -> Measurements:
        """All measurements; the same on every rank."""
        here = (len(os.sched_getaffinity(0)), torch.get_num_threads())
        machines = self.gather("cores", here)
        cores, threads = zip(*(machines[rank] for rank in range(0, self.world.size, self.ranks)), strict=True)
        pairs: list[Pair] = []
        samples: list[Sample] = []
        beside: list[Beside] = []
        if len(self.names) > 1:
            self.progress("links between the hosts")
            pairs = self._pairs()
            group = self.world.group(f"dp/leaders{self.ranks}" if self.ranks > 1 else "dp")
            samples += self._sockets("link", group)
            beside += self._beside("link", group, samples)
        if self.ranks > 1:
            group = self.world.group("dp" if len(self.names) == 1 else f"dp/intra{self.ranks}")
            samples += self._sockets("loopback", group)
            beside += self._beside("loopback", group, samples)
            samples += self._shared(group)
        return Measurements(cores, threads, self.ranks, tuple(pairs), tuple(samples), tuple(beside))

    # --- sockets --------------------------------------------------------------------------------------

    def _pairs(self) -> list[Pair]:
        ends = list(range(0, self.world.size, self.ranks))
        address = address_of(self.world.identity)
        with LinkServer(address) as server:
            offers = self.gather("link servers", server.offer)
            links = tournament(self.gather, self.world.rank, ends, rounds(len(ends)), offers, address)
            self.gather("links are measured")
        if failed := [link for link in links if link.error]:
            raise ConfigError(f"a link cannot be measured: {failed[0].error}; run fleetrun --doctor")
        return [Pair(x.source, x.target, x.bits_per_s / 1e9, x.latency_s / 2 * 1e6) for x in links]

    def _sockets(self, what: str, group: Group) -> list[Sample]:
        """All-reduces of several sizes over sockets, by the median of the slowest rank's times."""
        samples: list[Sample] = []
        for nbytes in _SIZES:
            if (
                samples
                and samples[-1].seconds * nbytes / samples[-1].nbytes > _LONGEST_S
                and nbytes > 1 << 20
            ):
                break
            self.progress(f"all-reduce of {nbytes} bytes over {what}")
            tensor = torch.ones(max(1, nbytes // 4))
            start = functools.partial(group.start_socket_all_reduce, tensor, "probe")
            took, cpu_s = self._timed(start, group)
            samples.append(Sample("all_reduce", what, group.size, tensor.nbytes, took, cpu_s))
        return samples

    def _timed(self, start: Callable[[], Work], group: Group) -> tuple[float, float]:
        """Median seconds of a collective, and the process's core seconds; of the slowest rank."""
        took: list[float] = []
        cpu_s = 0.0
        if group.size > 1:
            start().wait()
            count = self._agree(group, start)
            before = time.process_time()
            for _ in range(count):
                began = time.perf_counter()
                start().wait()
                took.append(time.perf_counter() - began)
            cpu_s = (time.process_time() - before) / count
        found = self.gather("times", [median(took) if took else 0.0, cpu_s])
        return max(t for t, _ in found), max(c for _, c in found)

    def _agree(self, group: Group, start: Callable[[], Work]) -> int:
        """How many repeats fit into the budget, the same on all ranks of the group."""
        began = time.perf_counter()
        start().wait()
        own = self.budget_s / max(time.perf_counter() - began, 1e-6)
        wanted = torch.tensor([min(100.0, max(3.0, own))])
        group.start_socket_all_reduce(wanted, "probe", "min").wait()
        return int(wanted)

    def _beside(self, what: str, group: Group, samples: Sequence[Sample]) -> list[Beside]:
        """Computation alone, and while all-reduces of a size are in flight."""
        known = [s for s in samples if s.what == what and s.seconds < _BESIDE * self.budget_s / 4]
        sizes = [s for s in known if s.nbytes >= 1 << 18][-2:] or known[-1:]
        return [self._beside_size(what, group, sample) for sample in sizes]

    def _beside_size(self, what: str, group: Group, sample: Sample) -> Beside:
        self.progress(f"computation beside all-reduces of {sample.nbytes} bytes over {what}")
        unit, alone = _Unit(), 0.0
        took = 0.0
        units = 0
        count = max(4, int(_BESIDE * self.budget_s / sample.seconds / 2))
        count = min(self.gather("repeats", count))
        if group.size > 1:
            alone = unit.seconds(self.budget_s / 2)
            tensors = [torch.ones(sample.nbytes // 4) for _ in range(2)]
            began = time.perf_counter()
            works = [group.start_socket_all_reduce(t, "probe") for t in tensors]
            for number in range(count - 2):
                units += unit.run_until(works[number].is_done)
                works.append(group.start_socket_all_reduce(tensors[number % 2], "probe"))
            for work in works[-2:]:
                units += unit.run_until(work.is_done)
            took = time.perf_counter() - began
            for work in works:
                work.wait()
        found = self.gather("beside", [alone, took, units])
        active = [f for f in found if f[2]]
        worst = max(active, key=lambda f: f[1] - f[2] * f[0])
        return Beside(what, group.size, sample.nbytes, count, worst[0], worst[2], worst[1])

    # --- shared memory --------------------------------------------------------------------------------

    def _shared(self, group: Group) -> list[Sample]:
        if group.shm is None:
            return []
        self.progress("shared memory")
        samples = [self._barriers(group)]
        for nbytes in _SHM_SIZES:
            buffer = self.world.flat_buffer(f"probe{nbytes}", nbytes // 4, torch.float32, group.name)
            buffer.local.fill_(1.0)
            if buffer.segment is None:
                return []
            start = functools.partial(group.start_all_reduce_span, buffer, 0, nbytes // 4, "probe")
            took, _ = self._timed(start, group)
            samples.append(Sample("sum", "shared memory", group.size, nbytes, took, took))
            samples.append(self._alone(buffer, nbytes))
        return samples

    def _barriers(self, group: Group) -> Sample:
        self.gather("barriers")
        began = time.perf_counter()
        for _ in range(_BARRIERS):
            group.start_barrier("probe").wait()
        took = (time.perf_counter() - began) / _BARRIERS
        took = max(self.gather("barrier", took))
        return Sample("barrier", "shared memory", group.size, 0, took, took)

    def _alone(self, buffer: Any, nbytes: int) -> Sample:
        """The sum of one rank's shard by the first rank of the host, while the others sleep."""
        took = 0.0
        if self.world.rank % self.ranks == 0:
            count = nbytes // 4 // self.ranks
            parts, out = [b[:count] for b in buffer.per_rank], buffer.result[:count]
            times = []
            for _ in range(max(5, min(50, int(2e8 / nbytes)))):
                began = time.perf_counter()
                add_up(parts, out)
                times.append(time.perf_counter() - began)
            took = median(times)
        return Sample("sum alone", "shared memory", self.ranks, nbytes, max(self.gather("alone", took)), took)


class _Unit:
    """A small piece of computation: products that stay in the cache, and a pass over some memory."""

    def __init__(self) -> None:
        self._a, self._b, self._out = (torch.rand(_MATRIX, _MATRIX) for _ in range(3))
        self._data = torch.ones(1 << 16)

    def run(self) -> None:
        torch.mm(self._a, self._b, out=self._out)
        self._data.mul_(1.0)

    def seconds(self, budget_s: float) -> float:
        """Of one, in the median."""
        times, ends = [], time.perf_counter() + budget_s
        while time.perf_counter() < ends:
            began = time.perf_counter()
            self.run()
            times.append(time.perf_counter() - began)
        return median(times)

    def run_until(self, is_done: Callable[[], bool]) -> int:
        """How many were run until then."""
        count = 0
        while not is_done():
            self.run()
            count += 1
        return count


def main(argv: Sequence[str] | None = None) -> int:
    """Every rank; rank 0 writes the file."""
    p = argparse.ArgumentParser(prog="python -m argosy.plan.probing")
    p.add_argument("output", type=Path)
    p.add_argument("--measurements", type=Path)
    p.add_argument("--auto", action="store_true")
    known = p.parse_args(argv)
    world = collective.connect()
    began = time.perf_counter()

    def progress(text: str) -> None:
        if world.rank == 0:
            print(f"probe, {time.perf_counter() - began:4.1f} s: {text}", file=sys.stderr, flush=True)

    measured = Probe(world, progress).run()
    if world.rank == 0:
        if known.measurements is not None:
            known.measurements.write_text(json.dumps(asdict(measured), indent=1))
        fit(measured).write(known.output)
        progress(f"written to {known.output}")
        if known.auto:
            cached = env.cache_dir() / PROBE_FILE
            cached.parent.mkdir(parents=True, exist_ok=True)
            fit(measured).write(cached)
            progress(f"written to {cached}, where strategy.auto finds it")
    return 0


if __name__ == "__main__":
    sys.exit(main())

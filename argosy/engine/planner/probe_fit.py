"""Fit a topology to what a probe measured: latency, time per message, bandwidth and core time of links; shared memory.

    T(B) = rounds · latency + messages · message time + serial bytes / bandwidth

of all-reduces at several sizes, by least squares of the relative errors, with no constant below zero.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass, replace
from itertools import product
from statistics import median
from typing import Any

import numpy as np

from argosy.engine.planner.patterns import Floats, barrier_rounds, pattern, shared_work
from argosy.engine.planner.topology import HostKind, Interference, Link, SharedMemory, Topology

UNMEASURED = "unmeasured"
"""The link of a single host."""
_SAME = 0.15
"""Links of hosts whose rates differ by less are one kind."""


@dataclass(frozen=True)
class Pair:
    """One direction between two hosts, over one TCP connection."""

    source: int
    target: int
    gbit_per_s: float
    latency_us: float


@dataclass(frozen=True)
class Sample:
    """A collective: the median of the slowest rank's times."""

    kind: str
    """all_reduce, over sockets; sum, sum alone, barrier, in shared memory."""
    what: str
    """link, loopback, shared memory."""
    ranks: int
    nbytes: int
    seconds: float
    cpu_s: float
    """Core seconds of a rank's process."""


@dataclass(frozen=True)
class Beside:
    """Computation while all-reduces over sockets are in flight."""

    what: str
    ranks: int
    nbytes: int
    count: int
    """All-reduces."""
    unit_s: float
    """A unit of computation, alone."""
    units: int
    """That were computed meanwhile."""
    seconds: float


@dataclass(frozen=True)
class Measurements:
    """What the ranks of a probe measured."""

    cores: tuple[int, ...]
    """By host."""
    threads: tuple[int, ...]
    ranks: int
    """Of one host."""
    pairs: tuple[Pair, ...] = ()
    samples: tuple[Sample, ...] = ()
    beside: tuple[Beside, ...] = ()


def fit(measured: Measurements) -> Topology:
    """The topology of the hosts that were measured, with as many ranks as the probe had."""
    names, links = _links(measured)
    kinds: list[HostKind] = []
    for host, name in enumerate(names):
        kind = HostKind(name, 1, measured.cores[host], measured.ranks, measured.threads[host])
        if kinds and replace(kinds[-1], count=1) == kind:
            kinds[-1] = replace(kinds[-1], count=kinds[-1].count + 1)
        else:
            kinds.append(kind)
    fitted: dict[str, Any] = {}
    if _of(measured, "loopback"):
        fitted["loopback"] = _link(measured, "loopback", None)
    if any(s.kind == "barrier" for s in measured.samples):
        fitted["shared_memory"] = _shared_memory(measured)
    elif measured.ranks > 1:
        fitted["shared_memory"] = None
    return Topology(tuple(kinds), links, interference=_interference(measured), **fitted)


# --- sockets ------------------------------------------------------------------------------------------


def _of(measured: Measurements, what: str) -> list[Sample]:
    return [s for s in measured.samples if s.kind == "all_reduce" and s.what == what]


def _links(measured: Measurements) -> tuple[list[str], dict[str, Link]]:
    """The name of each host's link, and the links: one, unless hosts differ."""
    num_hosts = len(measured.cores)
    if num_hosts == 1:
        return [UNMEASURED], {UNMEASURED: Link(1.0)}
    latency_us = median(pair.latency_us for pair in measured.pairs)
    link = _link(measured, "link", latency_us)
    rates = [
        max(_both(measured, host, other) for other in range(num_hosts) if other != host)
        for host in range(num_hosts)
    ]
    usual, slowest = median(rates), min(rates)
    if all(abs(rate / usual - 1) < _SAME for rate in rates):
        return ["network"] * num_hosts, {"network": link}
    # The all-reduce of all hosts has the rate of the slowest one.
    names = [f"network{host}" for host in range(num_hosts)]
    gbit = [link.gbit_per_s * rate / slowest for rate in rates]
    return names, {name: replace(link, gbit_per_s=_digits(g)) for name, g in zip(names, gbit, strict=True)}


def _both(measured: Measurements, host: int, other: int) -> float:
    """The rate between two hosts, of the slower direction."""
    return min(p.gbit_per_s for p in measured.pairs if {p.source, p.target} == {host, other})


def _link(measured: Measurements, what: str, latency_us: float | None) -> Link:
    samples = _of(measured, what)
    shapes = [pattern("all_reduce", "ring", s.ranks, s.nbytes) for s in samples]
    took = np.array([s.seconds for s in samples])
    rounds = np.array([p.rounds for p in shapes], dtype=np.float64)
    messages = np.array([p.messages for p in shapes], dtype=np.float64)
    nbytes = np.array([p.serial_bytes for p in shapes])
    if latency_us is None:  # the time per message cannot be told from the latency
        latency_s, per_byte = nonnegative_fit(np.stack([rounds, nbytes], axis=1), took)
        message_s = 0.0
    else:
        latency_s = latency_us / 1e6
        rest = np.maximum(took - rounds * latency_s, 0.05 * took)
        message_s, per_byte = nonnegative_fit(np.stack([messages, nbytes], axis=1), rest)
    last = max(samples, key=lambda s: s.nbytes)
    handled = pattern("all_reduce", "ring", last.ranks, last.nbytes).serial_bytes
    return Link(
        _digits(8e-9 / max(per_byte, 1e-13)),
        _digits(latency_s * 1e6),
        _digits(message_s * 1e6),
        _digits(last.cpu_s / handled * 1e9),
    )


def nonnegative_fit(terms: Floats, values: Floats) -> list[float]:
    """Coefficients of the terms, none below zero, with the least squares of the relative errors."""
    weighted, ones = terms / values[:, None], np.ones(len(values))
    best, best_error = np.zeros(terms.shape[1]), np.inf
    for chosen in product((False, True), repeat=terms.shape[1]):
        columns = np.flatnonzero(chosen)
        if not len(columns):
            continue
        found = np.linalg.lstsq(weighted[:, columns], ones, rcond=None)[0]
        error = float(np.square(weighted[:, columns] @ found - 1).sum())
        if (found >= 0).all() and error < best_error:
            best, best_error = np.zeros(terms.shape[1]), error
            best[columns] = found
    return [float(value) for value in best]


def _interference(measured: Measurements) -> Interference:
    """How computation and collectives over sockets slow each other down, beyond the core time of the sockets."""
    what = "link" if len(measured.cores) > 1 else "loopback"
    known = {s.nbytes: s for s in _of(measured, what)}
    runs = [run for run in measured.beside if run.what == what and run.units]
    if not runs:
        return Interference()
    has_spare_core = measured.cores[0] > (1 if what == "link" else measured.ranks) * measured.threads[0]
    slowdowns, delays = [], []
    for run in runs:
        sample = known[run.nbytes]
        taken = 0.0 if has_spare_core else min(0.9, sample.cpu_s * run.count / run.seconds)
        slowdowns.append((1 - taken) * run.seconds / (run.units * run.unit_s) - 1)
        # Beside computation, a thread gets half of a core: that is no interference.
        shared = 1.0 if has_spare_core else max(1.0, 2 * min(1.0, sample.cpu_s / sample.seconds))
        delays.append(run.seconds / (run.count * sample.seconds) / shared - 1)
    return Interference(_digits(max(0.0, median(slowdowns))), _digits(max(0.0, median(delays))))


# --- shared memory ------------------------------------------------------------------------------------


def _shared_memory(measured: Measurements) -> SharedMemory:
    by_kind = {
        kind: [s for s in measured.samples if s.kind == kind] for kind in ("barrier", "sum", "sum alone")
    }
    barrier = by_kind["barrier"][0]
    barrier_s = barrier.seconds / barrier_rounds(barrier.ranks)
    together, alone = (max(by_kind[kind], key=lambda s: s.nbytes) for kind in ("sum", "sum alone"))
    touched = shared_work("all_reduce", together.ranks, together.nbytes, is_flat=True)
    summing = max(together.seconds - touched.barriers * barrier.seconds, 0.1 * together.seconds)
    rate = touched.touched / alone.seconds / 1e9
    all_ranks = together.ranks * touched.touched / summing / 1e9
    return SharedMemory(
        _digits(rate), _digits(min(all_ranks, together.ranks * rate)), _digits(barrier_s * 1e6)
    )


def _digits(value: float) -> float:
    """Four digits: a file is to be read."""
    return float(f"{value:.4g}")

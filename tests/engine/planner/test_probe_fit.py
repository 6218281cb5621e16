"""The fit of a topology to measurements: known constants come back."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest

from argosy.engine.planner.patterns import pattern, shared_work
from argosy.engine.planner.probe_fit import (
    Beside,
    Measurements,
    Pair,
    Sample,
    fit,
    nonnegative_fit,
)
from argosy.engine.planner.topology import topology_from

LATENCY_S, MESSAGE_S, GBIT, CPU_S_PER_GB = 30e-6, 8e-6, 0.94, 1.5
SIZES = (4, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24)


def ring(nbytes: int, ranks: int = 2, gbit: float = GBIT) -> float:
    shape = pattern("all_reduce", "ring", ranks, nbytes)
    return shape.rounds * LATENCY_S + shape.messages * MESSAGE_S + shape.serial_bytes * 8e-9 / gbit


def link_samples(gbit: float = GBIT, ranks: int = 2) -> tuple[Sample, ...]:
    cpu_s = {n: CPU_S_PER_GB * pattern("all_reduce", "ring", ranks, n).serial_bytes / 1e9 for n in SIZES}
    return tuple(Sample("all_reduce", "link", ranks, n, ring(n, ranks, gbit), cpu_s[n]) for n in SIZES)


def pairs(*gbit: float) -> tuple[Pair, ...]:
    """Between all hosts; a host's rate is the smaller one of the two."""
    hosts = range(len(gbit))
    return tuple(Pair(a, b, min(gbit[a], gbit[b]), LATENCY_S * 1e6) for a in hosts for b in hosts if a != b)


def test_the_constants_of_equal_hosts_come_back() -> None:
    topology = fit(Measurements((4, 4), (2, 2), 1, pairs(GBIT, GBIT), link_samples()))
    link = topology.links["network"]
    assert link.gbit_per_s == pytest.approx(GBIT, rel=1e-3)
    assert link.latency_us == pytest.approx(30)
    assert link.message_us == pytest.approx(8, rel=1e-3)
    assert link.cpu_s_per_gb == pytest.approx(CPU_S_PER_GB, rel=1e-3)
    kind = topology.hosts[0]
    assert (kind.count, kind.cores, kind.threads, kind.ranks) == (2, 4, 2, 1)


def test_a_host_with_a_slow_link_gets_a_link_of_its_own() -> None:
    measured = Measurements((4,) * 3, (1,) * 3, 1, pairs(0.94, 0.94, 0.1), link_samples(0.1, ranks=3))
    topology = fit(measured)
    rates = [topology.links[kind.link].gbit_per_s for kind in topology.expanded()]
    assert rates == pytest.approx([0.94, 0.94, 0.1], rel=2e-3)


def test_shared_memory_that_two_ranks_saturate() -> None:
    nbytes, barrier_s, rate, all_ranks = 1 << 25, 4e-6, 10e9, 15e9
    work = shared_work("all_reduce", 2, nbytes, is_flat=True)
    together = work.barriers * barrier_s + 2 * work.touched / all_ranks
    samples = (
        Sample("barrier", "shared memory", 2, 0, barrier_s, 0.0),
        Sample("sum", "shared memory", 2, nbytes, together, 0.0),
        Sample("sum alone", "shared memory", 2, nbytes, work.touched / rate, 0.0),
        *(replace(s, what="loopback") for s in link_samples(20.0)),
    )
    memory = fit(Measurements((2,), (1,), 2, samples=samples)).shared_memory
    assert memory is not None
    assert memory.gb_per_s == pytest.approx(10, rel=1e-3)
    assert memory.host_gb_per_s == pytest.approx(15, rel=1e-3)
    assert memory.barrier_us == pytest.approx(4)


def test_without_shared_memory_ranks_use_sockets() -> None:
    samples = tuple(replace(s, what="loopback") for s in link_samples(20.0))
    topology = fit(Measurements((2,), (1,), 2, samples=samples))
    assert topology.shared_memory is None
    assert topology.loopback.gbit_per_s == pytest.approx(20, rel=0.02)


def test_interference_is_what_core_time_does_not_explain() -> None:
    """A core per host: the sockets take a fifth of it, and what is left computes 1.25 times as slowly."""
    samples = link_samples()
    last = samples[-1]
    count, unit_s = 10, 1e-4
    seconds = count * last.seconds
    samples = (*samples[:-1], replace(last, cpu_s=0.2 * last.seconds))
    units = round(0.8 * seconds / 1.25 / unit_s)
    beside = Beside("link", 2, last.nbytes, count, unit_s, units, seconds)
    found = fit(Measurements((1, 1), (1, 1), 1, pairs(GBIT, GBIT), samples, (beside,))).interference
    assert found.computation == pytest.approx(0.25, rel=1e-2)
    assert found.communication == pytest.approx(0.0, abs=1e-9)
    spare = fit(Measurements((2, 2), (1, 1), 1, pairs(GBIT, GBIT), samples, (beside,))).interference
    assert spare.computation == pytest.approx(1.25 / 0.8 - 1, rel=1e-2)


def test_a_collective_that_gets_half_of_a_core_is_not_disturbed() -> None:
    """The sockets need all of the core: beside computation they take twice as long."""
    samples = link_samples()
    last = replace(samples[-1], cpu_s=samples[-1].seconds)
    seconds, unit_s = 10 * 2 * last.seconds, 1e-4
    beside = Beside("link", 2, last.nbytes, 10, unit_s, round(0.5 * seconds / unit_s), seconds)
    measured = Measurements((1, 1), (1, 1), 1, pairs(GBIT, GBIT), (*samples[:-1], last), (beside,))
    found = fit(measured).interference
    assert (found.computation, found.communication) == pytest.approx((0.0, 0.0), abs=1e-2)


def test_a_coefficient_is_never_negative() -> None:
    terms = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    constant, slope = nonnegative_fit(terms, np.array([3.0, 2.0, 1.0]))
    assert slope == 0.0
    assert constant > 0


def test_the_file_can_be_read_again() -> None:
    import tomllib

    topology = fit(Measurements((4, 4), (2, 2), 1, pairs(GBIT, GBIT), link_samples()))
    assert topology_from(tomllib.loads(topology.to_toml()), "cluster.toml") == topology

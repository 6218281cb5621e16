"""Cores: affinity, cgroup limits, hyper-threads, threads of the ranks, load."""

# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Collection
from pathlib import Path

from argosy.doctor.cgroup import CgroupLimits
from argosy.doctor.check import Check

BUSY = 0.5
"""Other processes that use more than this fraction of the cores make the figures of a job doubtful."""


def cores(affinity: Collection[int], online: int, limits: CgroupLimits) -> Check:
    """The cores that this process may use, and why not all."""
    figure = f"{len(affinity)} of {online}"
    if limits.cores is not None and limits.cores < len(affinity):
        return Check(
            "cores",
            "warning",
            f"{figure}, but the cgroup allows {limits.cores:g}",
            "processes are throttled: raise the cpu limit of the container or job, or use fewer ranks and threads",
            limits.cores,
            "cores",
        )
    if len(affinity) < online:
        return Check("cores", "ok", f"{figure}, by CPU affinity", value=len(affinity), unit="cores")
    return Check("cores", "ok", figure, value=len(affinity), unit="cores")


def usable(affinity: Collection[int], limits: CgroupLimits) -> float:
    """Cores that the ranks of this host can keep busy."""
    return len(affinity) if limits.cores is None else min(len(affinity), limits.cores)


def physical_cores(affinity: Collection[int], root: Path = Path("/sys/devices/system/cpu")) -> int | None:
    """How many cores the hardware threads of `affinity` belong to; None if the kernel does not say."""
    siblings = set()
    for number in affinity:
        try:
            siblings.add((root / f"cpu{number}" / "topology" / "thread_siblings_list").read_text().strip())
        except OSError:
            return None
    return len(siblings)


def hyper_threads(affinity: Collection[int], physical: int | None, busy_threads: int) -> Check:
    """`busy_threads`: threads of all ranks of this host."""
    if physical is None:
        return Check("hyper-threads", "ok", "unknown: the kernel does not list the threads of a core")
    figure = f"{len(affinity)} hardware threads on {physical} cores"
    if physical == len(affinity):
        return Check("hyper-threads", "ok", f"none: {figure}", value=1.0, unit="threads per core")
    value = len(affinity) / physical
    if busy_threads > physical:
        return Check(
            "hyper-threads",
            "warning",
            f"{figure}, {busy_threads} threads of ranks",
            "two threads of a core share its arithmetic units: use as many threads as there are cores "
            f"(ranks x OMP_NUM_THREADS = {physical})",
            value,
            "threads per core",
        )
    return Check("hyper-threads", "ok", figure, value=value, unit="threads per core")


def threads(ranks: int, per_rank: int, cores: float) -> Check:
    """The threads of all ranks of this host against its cores."""
    figure = f"{ranks} x {per_rank} on {cores:g} cores"
    if ranks * per_rank > cores and ranks * per_rank > 1:
        advice = (
            f"threads wait for each other: set OMP_NUM_THREADS={max(1, int(cores / ranks))}"
            if ranks <= cores
            else f"use at most {int(cores) or 1} ranks on this host"
        )
        return Check("threads of ranks", "warning", figure, advice, ranks * per_rank, "threads")
    return Check("threads of ranks", "ok", figure, value=ranks * per_rank, unit="threads")


def load(average: float, online: int) -> Check:
    """The load of the last minute: what other processes use."""
    figure = f"{average:.2g} on {online} cores"
    if average > BUSY * online:
        return Check(
            "load",
            "warning",
            figure,
            "other processes use this host, and all figures are lower for it: see top, and repeat on a quiet host",
            average,
            "runnable tasks",
        )
    return Check("load", "ok", figure, value=average, unit="runnable tasks")


def check(limits: CgroupLimits, ranks: int, threads_per_rank: int) -> list[Check]:
    """All checks of the cores of this host."""
    affinity, online = os.sched_getaffinity(0), os.cpu_count() or 1
    return [
        cores(affinity, online, limits),
        hyper_threads(affinity, physical_cores(affinity), ranks * threads_per_rank),
        threads(ranks, threads_per_rank, usable(affinity, limits)),
        load(os.getloadavg()[0], online),
    ]

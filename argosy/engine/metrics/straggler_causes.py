"""Why a rank is a straggler: what is different about it, in the same steps, from the other ranks."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

_MAIN_PART = 0.5
"""What explains so much of the excess is its cause."""
_MINOR_FAULT_MS = 0.0007
"""A minor page fault: the kernel clears a page of 4 KB and maps it."""
_MAJOR_FAULT_MS = 0.1
"""At least: a read from a fast disk."""
_ADVICE = {
    "input": "start more reader processes (num_workers), prefetch more batches, or move its data to a faster disk",
    "script": (
        "see what its script does between two calls of Executor.run: reading, logging, evaluation; an Argosy "
        "DataLoader reads in the background"
    ),
    "link": "check the cable, switch port and interface of its host (fleetrun --doctor measures every link)",
    "load": "find the other processes on its host (top), or give the job all cores of it",
    "page_faults": "see the memory of its host (free, vmstat): use smaller batches, recompute, or fewer ranks there",
    "frequency": "check the cooling and the power settings of its host (cpupower frequency-info)",
    "batch": "give all ranks batches of one size (drop_last, a DistributedBatchSampler, buckets of similar lengths)",
    "blocked": "it neither computed nor waited for a core: look for locks and file access inside the step (a timeline)",
    "": "compare the hosts (fleetrun --doctor): hyper-threads, memory bandwidth and virtual machines that share a core",
}


@dataclass(frozen=True)
class SlowdownCause:
    """Why a rank is a straggler."""

    cause: str
    """computation, input, script or link"""
    because: str
    """What explains slow computation: load, page_faults, frequency, batch, blocked, or "" for none of them."""
    excess: float
    """How much longer it needs than the others, as a part of their time."""
    facts: str

    def text(self, rank: int) -> str:
        """For the user: what was measured, and what to do."""
        advice = _ADVICE[self.because or ("" if self.cause == "computation" else self.cause)]
        return f"rank {rank} is {100 * self.excess:.0f} % slower than the others: {self.facts}; {advice}"


@dataclass(frozen=True)
class Window:
    """What was measured on a rank in the steps in which one was found to be slow."""

    rank: int
    host: str
    ms: dict[str, float]
    """Mean milliseconds per step: period_ms, busy_ms, exposed_ms, outside_ms, input_ms."""
    records: list[dict[str, Any]]

    def per_step(self, key: str) -> float | None:
        """A counter of the records per step; None if it was not measured."""
        values = [record.get(key) for record in self.records]
        steps = sum(int(record["steps"]) for record in self.records)
        known = [float(value) for value in values if value is not None]
        return sum(known) / steps if known and steps else None

    def mean(self, key: str) -> float | None:
        """The mean of a field of the records; None if it was not measured."""
        known = [float(record[key]) for record in self.records if record.get(key) is not None]
        return sum(known) / len(known) if known else None


def delayed_part(window: Window) -> float:
    """Which part of its own time a rank waited for a core; 0 if it was not measured."""
    own_ms = window.ms["busy_ms"] + window.ms["outside_ms"]
    return 1000 * (window.per_step("delay_s") or 0.0) / own_ms if own_ms > 0 else 0.0


def explain(slow: Window, others: Sequence[Window], is_async: bool) -> SlowdownCause:
    """The cause of the excess of a rank over the others."""

    def excess(name: str) -> float:
        return slow.ms[name] - median([other.ms[name] for other in others])

    own_excess = excess("busy_ms") + excess("outside_ms")
    whole = excess("period_ms") if is_async else own_excess
    base = median([_compared(other, is_async) for other in others])
    relative = whole / base if base > 0 else 0.0
    if is_async and excess("exposed_ms") >= _MAIN_PART * whole:
        return SlowdownCause(
            "link", "", relative, _than("is blocked on parameter servers for", "exposed_ms", slow, others)
        )
    if excess("input_ms") >= _MAIN_PART * whole:
        return SlowdownCause(
            "input", "", relative, _than("waits for its input for", "input_ms", slow, others)
        )
    if excess("outside_ms") >= _MAIN_PART * whole:
        return SlowdownCause(
            "script", "", relative, _than("spends between two steps", "outside_ms", slow, others)
        )
    because, fact = _slow_computation(slow, others, excess("busy_ms"))
    facts = _than("its computation takes", "busy_ms", slow, others)
    return SlowdownCause("computation", because, relative, f"{facts}{f', {fact}' if fact else ''}")


def _compared(window: Window, is_async: bool) -> float:
    return window.ms["period_ms"] if is_async else window.ms["busy_ms"] + window.ms["outside_ms"]


def _than(what: str, name: str, slow: Window, others: Sequence[Window]) -> str:
    """`it waits for its input for 31.0 ms per step, the others for 0.2 ms`"""
    usual = median([other.ms[name] for other in others])
    return f"{what} {slow.ms[name]:.1f} ms per step, {usual:.1f} ms on the others"


def _slow_computation(slow: Window, others: Sequence[Window], excess_ms: float) -> tuple[str, str]:
    """What explains that computation takes longer, and the fact; empty if nothing does."""
    for check in (_batch, _load, _page_faults, _frequency, _blocked):
        if fact := check(slow, others, excess_ms):
            return check.__name__.removeprefix("_"), fact
    return "", "and neither load, page faults nor frequency of its host explain it"


def _difference(
    slow: Window, others: Sequence[Window], of: Callable[[Window], float | None]
) -> tuple[float, float] | None:
    """A value of the slow rank, and the median of the others; None if it was not measured."""
    mine, theirs = of(slow), [value for other in others if (value := of(other)) is not None]
    return (mine, median(theirs)) if mine is not None and theirs else None


def _batch(slow: Window, others: Sequence[Window], excess_ms: float) -> str:
    pair = _difference(slow, others, lambda w: w.per_step("examples"))
    if pair is None or pair[1] <= 0:
        return ""
    explained = (pair[0] / pair[1] - 1) * (slow.ms["busy_ms"] - excess_ms)
    return (
        f"its batches have {pair[0]:.4g} examples and those of the others {pair[1]:.4g}"
        if explained >= _MAIN_PART * excess_ms
        else ""
    )


def _load(slow: Window, others: Sequence[Window], excess_ms: float) -> str:
    pair = _difference(slow, others, lambda w: w.per_step("delay_s"))
    if pair is None or 1000 * (pair[0] - pair[1]) < _MAIN_PART * excess_ms:
        return ""
    return f"because other processes run on its cores: it waited {1000 * pair[0]:.1f} ms per step for one"


def _page_faults(slow: Window, others: Sequence[Window], excess_ms: float) -> str:
    minor = _difference(slow, others, lambda w: w.per_step("minor_faults")) or (0.0, 0.0)
    major = _difference(slow, others, lambda w: w.per_step("major_faults")) or (0.0, 0.0)
    explained = _MINOR_FAULT_MS * (minor[0] - minor[1]) + _MAJOR_FAULT_MS * (major[0] - major[1])
    if explained < _MAIN_PART * excess_ms:
        return ""
    here, there = (f"{major[i]:.0f} major and {minor[i]:.0f} minor" for i in (0, 1))
    return f"with {here} page faults per step ({there} on the others)"


def _frequency(slow: Window, others: Sequence[Window], excess_ms: float) -> str:
    pair = _difference(slow, others, lambda w: w.mean("mhz"))
    if pair is None or pair[0] <= 0:
        return ""
    explained = (pair[1] / pair[0] - 1) * (slow.ms["busy_ms"] - excess_ms)
    return (
        f"its cores run at {pair[0]:.0f} MHz and those of the others at {pair[1]:.0f}"
        if explained >= _MAIN_PART * excess_ms
        else ""
    )


def _blocked(slow: Window, others: Sequence[Window], excess_ms: float) -> str:
    """It takes longer without more processor time, and did not wait for a core: it slept."""
    if delayed_part(slow) > 0.2:
        return ""
    cpu = _difference(slow, others, lambda w: w.per_step("cpu_s"))
    if (
        cpu is None
        or 1000 * (cpu[0] - cpu[1]) > 0.2 * excess_ms
        or cpu[0] * 1000 > 0.8 * slow.ms["period_ms"]
    ):
        return ""
    here, there = (f"{1000 * seconds:.1f} ms" for seconds in cpu)
    return f"and it is not computing meanwhile ({here} of processor time per step, {there} on the others)"

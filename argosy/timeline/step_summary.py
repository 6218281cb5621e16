"""The numbers of a timeline.

    step          = forward + backward + optimize + communicate + other + exposed        time of the main thread
    communication = exposed + hidden                                                     time of the network

Each time is a median over the recorded steps; the first sum holds for every step, and nearly for the medians.
Exposed: the main thread waits for a collective, or runs it. The times of the roles exclude it; `communicate` is the
rest of its nodes: starting collectives. Other: the time outside of all nodes.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from argosy.engine.intervals import Interval, length, overlap, union, within
from argosy.timeline.merge import Shift, shifts
from argosy.timeline.traces import ROLES, Event, Key, Trace


@dataclass(frozen=True)
class RankTimes:
    """Milliseconds per step of one rank."""

    rank: int
    host: str
    steps: int
    step_ms: float
    forward_ms: float
    backward_ms: float
    optimize_ms: float
    communicate_ms: float
    other_ms: float
    exposed_ms: float
    communication_ms: float
    hidden_ms: float
    exposed_fraction: float
    """exposed / communication; 0 without communication."""
    busy_ms: float
    """The step without the exposed time."""
    collectives: float
    megabytes: float
    """Collectives per step, and their payload in units of 1e6 bytes."""


@dataclass(frozen=True)
class StragglerTimes:
    """The rank that the others wait for: it waits least itself."""

    rank: int
    busy_ms: float
    waiting_rank: int
    """The rank that waits longest."""
    extra_wait_ms: float
    """How much longer that rank waits per step than the straggler."""
    num_last: int
    """The number of collectives that the straggler was the last rank to start."""
    num_collectives: int
    """The number of collectives that all ranks took part in."""


@dataclass(frozen=True)
class CollectiveTimes:
    """One collective of the program, over all steps and ranks."""

    name: str
    group: str
    bytes: int
    times: int
    ms: float
    queue_ms: float
    wait_ms: float


@dataclass(frozen=True)
class Summary:
    """The numbers that `python -m argosy.timeline` prints."""

    ranks: list[RankTimes]
    straggler: StragglerTimes | None
    """None if there is one rank, or no collective."""
    longest: list[CollectiveTimes]
    shifts: list[Shift]


def summarize(traces: Sequence[Trace], num_longest: int = 5) -> Summary:
    """Summarize the traces of these ranks."""
    ranks = [_times(trace) for trace in traces]
    offsets = shifts(traces)
    return Summary(ranks, _straggler(ranks, traces, offsets), _longest(traces)[:num_longest], offsets)


def _times(trace: Trace) -> RankTimes:
    windows = [_interval(e) for e in trace.of_kind("step")]
    waits = [_interval(e) for e in trace.of_kind("wait")]
    collectives = list(trace.of_kind("collective"))
    communicating = [_interval(e) for e in collectives] + waits  # a waiting rank still communicates
    nodes = {role: [_interval(e) for e in trace.of_kind(role)] for role in ROLES}
    rows = [_one_step(window, waits, communicating, nodes) for window in windows]
    middle = {key: median(row[key] for row in rows) / 1000 for key in rows[0]}
    inside = [e for e in collectives if any(begin <= e["ts"] < end for begin, end in windows)]
    return RankTimes(
        rank=trace.rank,
        host=trace.about["host"],
        steps=len(windows),
        **{f"{key}_ms": value for key, value in middle.items()},
        hidden_ms=middle["communication"] - middle["exposed"],
        exposed_fraction=middle["exposed"] / middle["communication"] if middle["communication"] else 0.0,
        collectives=len(inside) / len(windows),
        megabytes=sum(e["args"]["bytes"] for e in inside) / len(windows) / 1e6,
    )


def _one_step(
    window: Interval, waits: list[Interval], communicating: list[Interval], nodes: dict[str, list[Interval]]
) -> dict[str, float]:
    """The rows of the table for one step, in microseconds."""
    blocked = union(within(waits, window))
    exposed, communication = length(blocked), length(union(within(communicating, window)))
    row = {}
    for role, spans in nodes.items():
        ran = sorted(within(spans, window))
        row[role] = length(ran) - overlap(ran, blocked)
    whole = window[1] - window[0]
    return row | {
        "step": whole,
        "other": whole - exposed - sum(row.values()),
        "exposed": exposed,
        "communication": communication,
        "busy": whole - exposed,
    }


def _interval(event: Event) -> Interval:
    return event["ts"], event["ts"] + event["dur"]


def _straggler(
    ranks: list[RankTimes], traces: Sequence[Trace], offsets: list[Shift]
) -> StragglerTimes | None:
    """A collective ends at the same time on all ranks, so the rank that waits least started it last."""
    if len(ranks) == 1 or not any(r.communication_ms for r in ranks):
        return None
    straggler = min(ranks, key=lambda r: r.exposed_ms)
    waiting = max(ranks, key=lambda r: r.exposed_ms)
    extra_ms = waiting.exposed_ms - straggler.exposed_ms
    last = _last_to_start(traces, offsets)
    num_last = last.count(straggler.rank)
    return StragglerTimes(straggler.rank, straggler.busy_ms, waiting.rank, extra_ms, num_last, len(last))


def _last_to_start(traces: Sequence[Trace], offsets: list[Shift]) -> list[int]:
    """For each collective of all ranks, the rank that started it last."""
    starts: dict[Key, list[tuple[float, int]]] = {}
    for trace, shift in zip(traces, offsets, strict=True):
        for key, event in trace.collectives().items():
            started = event["ts"] - event["args"]["queue_us"] + shift.us
            starts.setdefault(key, []).append((started, trace.rank))
    return [max(started)[1] for started in starts.values() if len(started) == len(traces)]


def _longest(traces: Sequence[Trace]) -> list[CollectiveTimes]:
    """The collectives of the program, longest first."""
    by_name: dict[tuple[str, str], list[Event]] = {}
    for trace in traces:
        for event in trace.of_kind("collective"):
            by_name.setdefault((event["name"], event["args"]["group"]), []).append(event)
    times = [
        CollectiveTimes(
            *key,
            bytes=max(e["args"]["bytes"] for e in events),
            times=len(events),
            ms=median(e["dur"] for e in events) / 1000,
            queue_ms=median(e["args"]["queue_us"] for e in events) / 1000,
            wait_ms=median(e["args"]["wait_us"] for e in events) / 1000,
        )
        for key, events in by_name.items()
    ]
    return sorted(times, key=lambda entry: -entry.ms)

"""The numbers of a timeline.

    step          = forward + backward + optimize + communicate + other + exposed        the main thread's time
    communication = exposed + hidden                                                     the network's time

Each time is a median over the recorded steps; the first sum holds for every step, and nearly for the medians.
Exposed: the main thread stands still for an exchange, or does its work. The roles count without that time, and
`communicate` is what is left of its nodes: to start exchanges. Other: what happens outside of all nodes.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from argosy.timeline.intervals import Interval, length, shared, union, within
from argosy.timeline.merge import Shift, shifts
from argosy.timeline.traces import ROLES, Event, Key, Trace


@dataclass(frozen=True)
class RankTimes:
    """Milliseconds a step of one rank."""

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
    exposed_share: float
    """Exposed by communication; 0 if there was none."""
    own_ms: float
    """The step without what is exposed."""
    exchanges: float
    megabytes: float
    """How many exchanges a step, and how many bytes (in units of 1e6) go into them."""


@dataclass(frozen=True)
class Slowest:
    """The rank that the others wait for."""

    rank: int
    own_ms: float
    held_up: int
    """The rank that waits longest, …"""
    by_ms: float
    """… so much longer a step than the slowest, which waits least."""
    last_at: int
    """At so many exchanges of all ranks it came last, …"""
    of_exchanges: int
    """… of so many."""


@dataclass(frozen=True)
class Longest:
    """One exchange of the program, over all steps and ranks."""

    name: str
    group: str
    bytes: int
    times: int
    ms: float
    queue_ms: float
    wait_ms: float


@dataclass(frozen=True)
class Summary:
    """All that `python -m argosy.timeline` prints."""

    ranks: list[RankTimes]
    slowest: Slowest | None
    """None if there is one rank, or nothing was exchanged."""
    longest: list[Longest]
    shifts: list[Shift]


def summarize(traces: Sequence[Trace], num_longest: int = 5) -> Summary:
    """The numbers of these ranks."""
    ranks = [_times(trace) for trace in traces]
    found = shifts(traces)
    return Summary(ranks, _slowest(ranks, traces, found), _longest(traces)[:num_longest], found)


def _times(trace: Trace) -> RankTimes:
    windows = [_interval(e) for e in trace.of_kind("step")]
    waits = [_interval(e) for e in trace.of_kind("wait")]
    exchanges = list(trace.of_kind("exchange"))
    busy = [_interval(e) for e in exchanges] + waits  # who waits still communicates
    nodes = {role: [_interval(e) for e in trace.of_kind(role)] for role in ROLES}
    rows = [_one_step(window, waits, busy, nodes) for window in windows]
    middle = {key: median(row[key] for row in rows) / 1000 for key in rows[0]}
    inside = [e for e in exchanges if any(begin <= e["ts"] < end for begin, end in windows)]
    return RankTimes(
        rank=trace.rank,
        host=trace.about["host"],
        steps=len(windows),
        **{f"{key}_ms": value for key, value in middle.items()},
        hidden_ms=middle["communication"] - middle["exposed"],
        exposed_share=middle["exposed"] / middle["communication"] if middle["communication"] else 0.0,
        exchanges=len(inside) / len(windows),
        megabytes=sum(e["args"]["bytes"] for e in inside) / len(windows) / 1e6,
    )


def _one_step(
    window: Interval, waits: list[Interval], busy: list[Interval], nodes: dict[str, list[Interval]]
) -> dict[str, float]:
    """The rows of the table for one step, in microseconds."""
    blocked = union(within(waits, window))
    exposed, communication = length(blocked), length(union(within(busy, window)))
    row = {}
    for role, spans in nodes.items():
        ran = sorted(within(spans, window))
        row[role] = length(ran) - shared(ran, blocked)
    whole = window[1] - window[0]
    return row | {
        "step": whole,
        "other": whole - exposed - sum(row.values()),
        "exposed": exposed,
        "communication": communication,
        "own": whole - exposed,
    }


def _interval(event: Event) -> Interval:
    return event["ts"], event["ts"] + event["dur"]


def _slowest(ranks: list[RankTimes], traces: Sequence[Trace], found: list[Shift]) -> Slowest | None:
    """An exchange takes its time on all ranks; who waits less than another came later."""
    if len(ranks) == 1 or not any(r.communication_ms for r in ranks):
        return None
    slowest = min(ranks, key=lambda r: r.exposed_ms)
    held_up = max(ranks, key=lambda r: r.exposed_ms)
    by_ms = held_up.exposed_ms - slowest.exposed_ms
    last = _last_to_come(traces, found)
    return Slowest(slowest.rank, slowest.own_ms, held_up.rank, by_ms, last.count(slowest.rank), len(last))


def _last_to_come(traces: Sequence[Trace], found: list[Shift]) -> list[int]:
    """For each exchange that all ranks made, the rank that started it last."""
    starts: dict[Key, list[tuple[float, int]]] = {}
    for trace, shift in zip(traces, found, strict=True):
        for key, event in trace.exchanges().items():
            started = event["ts"] - event["args"]["queue_us"] + shift.us
            starts.setdefault(key, []).append((started, trace.rank))
    return [max(came)[1] for came in starts.values() if len(came) == len(traces)]


def _longest(traces: Sequence[Trace]) -> list[Longest]:
    """The exchanges of the program, those first that take longest."""
    same: dict[tuple[str, str], list[Event]] = {}
    for trace in traces:
        for event in trace.of_kind("exchange"):
            same.setdefault((event["name"], event["args"]["group"]), []).append(event)
    found = [
        Longest(
            *key,
            bytes=max(e["args"]["bytes"] for e in events),
            times=len(events),
            ms=median(e["dur"] for e in events) / 1000,
            queue_ms=median(e["args"]["queue_us"] for e in events) / 1000,
            wait_ms=median(e["args"]["wait_us"] for e in events) / 1000,
        )
        for key, events in same.items()
    ]
    return sorted(found, key=lambda one: -one.ms)

"""Where the time of a step goes by line of the script, by op and by node: means over the recorded steps and ranks."""

# SPDX-License-Identifier: Apache-2.0
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from argosy.engine.intervals import Interval, union
from argosy.timeline.traces import ROLES, Event, Trace


@dataclass(frozen=True)
class NodeRow:
    """The time of some nodes, per step and rank."""

    name: str
    role: str
    """Its role, or several."""
    op: str
    source: str
    per_step: float
    """How many events there are in a step."""
    ms: float
    """Milliseconds per step, with those in which the main thread was blocked."""
    blocked_ms: float


def by_source(traces: Sequence[Trace]) -> list[NodeRow]:
    """By line of the script: a layer, in most scripts."""
    return _grouped(traces, lambda e: (_argument(e, "source") or "unknown",))


def by_op(traces: Sequence[Trace]) -> list[NodeRow]:
    """By op and role."""
    return _grouped(traces, lambda e: (_argument(e, "op") or str(e["name"]), str(e["cat"])))


def by_node(traces: Sequence[Trace]) -> list[NodeRow]:
    """By node of the program."""
    return _grouped(traces, lambda e: (str(e["name"]), str(e["cat"])))


def _argument(event: Event, key: str) -> str:
    value = event["args"].get(key)
    return value if isinstance(value, str) else ""


def _grouped(traces: Sequence[Trace], key_of: Callable[[Event], tuple[str, ...]]) -> list[NodeRow]:
    groups: dict[tuple[str, ...], list[Event]] = defaultdict(list)
    blocked_us: dict[tuple[str, ...], float] = defaultdict(float)
    for trace in traces:
        waits = union((e["ts"], e["ts"] + e["dur"]) for e in trace.of_kind("wait"))
        ends = [end for _, end in waits]
        for event in trace.of_kind(*ROLES):
            key = key_of(event)
            groups[key].append(event)
            blocked_us[key] += _blocked(event, waits, ends)
    steps = sum(1 for trace in traces for _ in trace.of_kind("step"))
    rows = [
        NodeRow(
            name=key[0],
            role=_joined(str(e["cat"]) for e in events),
            op=_joined(_argument(e, "op") for e in events),
            source=_joined(_argument(e, "source") for e in events),
            per_step=len(events) / steps,
            ms=sum(e["dur"] for e in events) / steps / 1000,
            blocked_ms=blocked_us[key] / steps / 1000,
        )
        for key, events in groups.items()
    ]
    return sorted(rows, key=lambda row: -row.ms)


def _blocked(event: Event, waits: list[Interval], ends: list[float]) -> float:
    begin, end = event["ts"], event["ts"] + event["dur"]
    total = 0.0
    for i in range(bisect_right(ends, begin), len(waits)):
        if waits[i][0] >= end:
            break
        total += min(end, waits[i][1]) - max(begin, waits[i][0])
    return total


def _joined(texts: Iterable[str], most: int = 3) -> str:
    distinct = list(dict.fromkeys(filter(None, texts)))
    return ", ".join(distinct[:most]) + (" …" if len(distinct) > most else "")

"""All ranks in one trace, on one clock.

Ranks of one kernel have the same clock already. Those of another host are shifted so that the same exchanges
end at the same time on all ranks, which they nearly do: the median of the differences.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from argosy.timeline.traces import Event, Key, Trace

MERGED = "merged.json"


@dataclass(frozen=True)
class Shift:
    """What is added to the times of a rank to get rank 0's."""

    rank: int
    us: float
    by: Literal["same clock", "exchanges", "wall clock"]


def shifts(traces: Sequence[Trace]) -> list[Shift]:
    """For each rank; all ranks of one clock are shifted alike."""
    by_clock: dict[str, list[Trace]] = {}
    for trace in traces:
        by_clock.setdefault(trace.about["clock"], []).append(trace)
    reference = by_clock[traces[0].about["clock"]]
    found = {clock: _shift(reference, others) for clock, others in by_clock.items()}
    return [Shift(t.rank, *found[t.about["clock"]]) for t in traces]


def _shift(
    reference: list[Trace], others: list[Trace]
) -> tuple[float, Literal["same clock", "exchanges", "wall clock"]]:
    if others is reference:
        return 0.0, "same clock"
    ends = [_end(a) - _end(b) for one in reference for other in others for a, b in _common(one, other)]
    if ends:
        return median(ends), "exchanges"
    (wall, own), (wall_here, own_here) = others[0].about["anchors"][0], reference[0].about["anchors"][0]
    return ((wall - own) - (wall_here - own_here)) / 1000, "wall clock"


def _end(event: Event) -> float:
    return float(event["ts"] + event["dur"])


def _common(one: Trace, other: Trace) -> list[tuple[Event, Event]]:
    """The exchanges of both ranks. Groups inside a host have the same names everywhere and nothing in common."""
    first, second = one.exchanges(), other.exchanges()
    return [(first[key], second[key]) for key in first.keys() & second.keys() if not _is_inside_a_host(key)]


def _is_inside_a_host(key: Key) -> bool:
    return "/inner" in key[0]


def merged(traces: Sequence[Trace]) -> dict[str, Any]:
    """One trace with a process for each rank; its time begins at 0."""
    found = shifts(traces)
    starts = [e["ts"] + s.us for t, s in zip(traces, found, strict=True) for e in t.events if "ts" in e]
    origin = min(starts)
    events = [
        event | {"pid": shift.rank} | ({"ts": event["ts"] + shift.us - origin} if "ts" in event else {})
        for trace, shift in zip(traces, found, strict=True)
        for event in trace.events
    ]
    about = {"format": "argosy.timeline.merged", "ranks": [t.about for t in traces]}
    return {
        "displayTimeUnit": "ms",
        "otherData": about | {"shifts": [asdict(s) for s in found]},
        "traceEvents": events,
    }


def merge(directory: str | os.PathLike[str], traces: Sequence[Trace]) -> Path:
    """Write directory/merged.json, whole or not at all."""
    path = Path(directory) / MERGED
    temporary = path.with_name(f".{MERGED}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(merged(traces), separators=(",", ":")))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path

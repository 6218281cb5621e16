"""Merge the traces of all ranks into one, on one clock.

Ranks on one host share a clock. Ranks of another host are shifted by the median difference of the end times of common
collectives, which end at nearly the same time on all ranks.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from argosy.engine.files import replacement
from argosy.timeline.traces import Event, Key, Trace

MERGED = "merged.json"


@dataclass(frozen=True)
class Shift:
    """The offset from a rank's clock to rank 0's."""

    rank: int
    us: float
    by: Literal["same clock", "collectives", "wall clock"]


def shifts(traces: Sequence[Trace]) -> list[Shift]:
    """The shift of each rank; ranks with the same clock have the same shift."""
    by_clock: dict[str, list[Trace]] = {}
    for trace in traces:
        by_clock.setdefault(trace.about["clock"], []).append(trace)
    reference = by_clock[traces[0].about["clock"]]
    offsets = {clock: _shift(reference, others) for clock, others in by_clock.items()}
    return [Shift(t.rank, *offsets[t.about["clock"]]) for t in traces]


def _shift(
    reference: list[Trace], others: list[Trace]
) -> tuple[float, Literal["same clock", "collectives", "wall clock"]]:
    if others is reference:
        return 0.0, "same clock"
    ends = [_end(a) - _end(b) for first in reference for second in others for a, b in _common(first, second)]
    if ends:
        return median(ends), "collectives"
    (wall, clock), (reference_wall, reference_clock) = (
        others[0].about["anchors"][0],
        reference[0].about["anchors"][0],
    )
    return ((wall - clock) - (reference_wall - reference_clock)) / 1000, "wall clock"


def _end(event: Event) -> float:
    return float(event["ts"] + event["dur"])


def _common(a: Trace, b: Trace) -> list[tuple[Event, Event]]:
    """The collectives that both ranks took part in.

    Intra-host groups are excluded: they have the same names on all hosts, but are different groups.
    """
    first, second = a.collectives(), b.collectives()
    return [(first[key], second[key]) for key in first.keys() & second.keys() if not _is_intra_host(key)]


def _is_intra_host(key: Key) -> bool:
    return "/intra" in key[0]


def merged(traces: Sequence[Trace]) -> dict[str, Any]:
    """One trace with a process for each rank; its time starts at 0."""
    offsets = shifts(traces)
    starts = [e["ts"] + s.us for t, s in zip(traces, offsets, strict=True) for e in t.events if "ts" in e]
    origin = min(starts)
    events = [
        event | {"pid": shift.rank} | ({"ts": event["ts"] + shift.us - origin} if "ts" in event else {})
        for trace, shift in zip(traces, offsets, strict=True)
        for event in trace.events
    ]
    about = {"format": "argosy.timeline.merged", "ranks": [t.about for t in traces]}
    return {
        "displayTimeUnit": "ms",
        "otherData": about | {"shifts": [asdict(s) for s in offsets]},
        "traceEvents": events,
    }


def merge(directory: str | os.PathLike[str], traces: Sequence[Trace]) -> Path:
    """Write directory/merged.json atomically."""
    path = Path(directory) / MERGED
    with replacement(path) as temporary:
        temporary.write_text(json.dumps(merged(traces), separators=(",", ":")))
    return path

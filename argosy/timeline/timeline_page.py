"""A timeline as one self-contained HTML page: tracks of all ranks to zoom into, and tables by line, op and node.

The events are embedded in columns, with their texts in a table of strings, 15 bytes per event: 100,000 of them are
1.5 MB.
"""

# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from argosy.charts import script, stylesheet  # `from argosy import charts` would load torch
from argosy.charts.page import page
from argosy.engine.files import replacement
from argosy.timeline.merge import shifts
from argosy.timeline.node_table import NodeRow, by_node, by_op, by_source
from argosy.timeline.step_summary import CollectiveTimes, summarize
from argosy.timeline.traces import Event, Trace, read

PAGE = "timeline.html"
FORMAT, VERSION = "argosy.timeline.page", 1
TICK_US = 0.1
"""Times are embedded as integers of this unit."""
_ROWS = 500
_INFO = ("op", "type", "source", "group", "communicator", "bytes", "program")


def html(directory: str | os.PathLike[str]) -> str:
    """The page of the traces in a directory; raises ConfigError if they are missing or incomplete."""
    return html_of(read(directory), Path(directory).absolute().name)


def html_of(traces: Sequence[Trace], name: str) -> str:
    """The page of these traces."""
    here = files("argosy.timeline")
    return page(
        f"{name}: timeline",
        (here / "timeline.html").read_text().replace("{name}", escape(name)),
        content(traces),
        styles=(stylesheet(), (here / "timeline.css").read_text()),
        scripts=(script(), (here / "timeline.js").read_text()),
    )


def write_html(path: Path, traces: Sequence[Trace], name: str) -> None:
    """Write the page atomically."""
    text = html_of(traces, name)
    with replacement(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")


def content(traces: Sequence[Trace]) -> dict[str, Any]:
    """The embedded data: ranks with tracks of events, and the tables."""
    offsets = shifts(traces)
    origin = min(e["ts"] + s.us for t, s in zip(traces, offsets, strict=True) for e in t.events if "ts" in e)
    strings, infos = _Numbered(), _Numbered()
    ranks = [
        {
            "rank": trace.rank,
            "host": trace.about["host"],
            "tracks": _tracks(trace, shift.us - origin, strings, infos),
        }
        for trace, shift in zip(traces, offsets, strict=True)
    ]
    summary = summarize(traces, num_longest=_ROWS)
    return {
        "format": FORMAT,
        "version": VERSION,
        "tick_us": TICK_US,
        "strings": strings.values,
        "infos": [dict(info) for info in infos.values],
        "ranks": ranks,
        "summary": asdict(summary) | {"longest": []},
        "tables": {
            "source": [_row(r) for r in by_source(traces)[:_ROWS]],
            "op": [_row(r) for r in by_op(traces)[:_ROWS]],
            "node": [_row(r) for r in by_node(traces)[:_ROWS]],
            "collective": [_collective_row(c, traces) for c in summary.longest],
        },
    }


class _Numbered:
    """Distinct values in the order of their first use."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def __getitem__(self, value: Any) -> int:
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


def _tracks(trace: Trace, shift_us: float, strings: _Numbered, infos: _Numbered) -> list[dict[str, Any]]:
    names = {
        e.get("tid"): str(e["args"].get("name"))
        for e in trace.events
        if e["ph"] == "M" and e.get("name") == "thread_name"
    }
    by_track: dict[Any, list[Event]] = {}
    for event in trace.events:
        if event["ph"] == "X":
            by_track.setdefault(event.get("tid", 0), []).append(event)
    tracks = sorted(by_track.items(), key=lambda item: (not isinstance(item[0], int), str(item[0]).zfill(9)))
    return [
        _track(names.get(tid) or _track_name(events[0]), events, shift_us, strings, infos)
        for tid, events in tracks
    ]


def _track_name(event: Event) -> str:
    return {"step": "step", "wait": "blocked"}.get(event["cat"], str(event["cat"]))


def _track(
    name: str, events: list[Event], shift_us: float, strings: _Numbered, infos: _Numbered
) -> dict[str, Any]:
    """Columns: begin (each minus the one before), length, name, info; for collectives number, queue and wait."""
    events = sorted(events, key=lambda e: (e["ts"], -e["dur"]))
    begins = [max(0, round((e["ts"] + shift_us) / TICK_US)) for e in events]
    track: dict[str, Any] = {
        "name": name,
        "begin": [b - a for a, b in zip([0, *begins[:-1]], begins, strict=True)],
        "length": [max(0, round(e["dur"] / TICK_US)) for e in events],
        "text": [strings[str(e["name"])] for e in events],
        "info": [infos[_info(e)] for e in events],
    }
    if any(e["cat"] == "collective" for e in events):
        track["more"] = [
            [e["args"].get(key) for key in ("number", "queue_us", "wait_us")]
            if e["cat"] == "collective"
            else None
            for e in events
        ]
    return track


def _info(event: Event) -> tuple[tuple[str, Any], ...]:
    about = event["args"]
    known = ((key, about[key]) for key in _INFO if isinstance(about.get(key), str | int) and about[key] != "")
    return (("cat", event["cat"]), *known)


def _row(times: NodeRow) -> list[Any]:
    numbers = (round(times.per_step, 3), round(times.ms, 5), round(times.blocked_ms, 5))
    return [times.name, times.role, times.op, times.source, *numbers]


def _collective_row(c: CollectiveTimes, traces: Sequence[Trace]) -> list[Any]:
    steps = sum(1 for trace in traces for _ in trace.of_kind("step"))
    return [
        c.name,
        c.group,
        c.bytes,
        round(c.times / steps, 3),
        *(round(v, 5) for v in (c.ms, c.queue_ms, c.wait_ms)),
    ]

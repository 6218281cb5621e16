"""Traces with round numbers."""

# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def event(name: str, kind: str, begin: float, end: float, **about: Any) -> Event:
    return {"ph": "X", "name": name, "cat": kind, "ts": begin, "dur": end - begin, "tid": 1, "args": about}


def collective(number: int, begin: float, end: float, group: str = "dp", queue: float = 0.0) -> Event:
    about = {"group": group, "number": number, "bytes": 4_000_000, "queue_us": queue, "wait_us": 0.0}
    return event(f"all_reduce g{number % 10}", "collective", begin, end, **about)


def wait(begin: float, end: float) -> Event:
    return event("wait for it", "wait", begin, end)


def trace(
    rank: int, events: list[Event], size: int = 2, clock: str = "here", wall_ns: int = 0
) -> dict[str, Any]:
    about = {"format": "argosy.timeline", "version": 1, "rank": rank, "size": size, "host": f"host-{rank}"}
    about |= {"clock": clock, "network": "net:[1]", "anchors": [[wall_ns, 0]]}
    return {"otherData": about, "traceEvents": events}


def write(directory: Path, *traces: dict[str, Any]) -> Path:
    for one in traces:
        (directory / f"rank{one['otherData']['rank']}.json").write_text(json.dumps(one))
    return directory

"""Timelines that a viewer asks for: the request to the ranks, and what has come of it.

page ──POST──▶ requests.json ──▶ ranks record 10 steps ──▶ log/timeline-ID/rankN.json ──▶ merged for Perfetto, or a page
"""

# SPDX-License-Identifier: Apache-2.0
import math
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argosy.engine.metrics.job_directory import METRICS, REQUESTS, read_json, write_json
from argosy.timeline import merge, read, timeline_page

STEPS = 10
LEAD_S = 4.0
"""Ranks read requests when they write a record, twice per second or after each step that takes longer; the view of the
last step is as old as that."""
_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9]{1,12}")


@dataclass
class TimelineRequest:
    """What was asked of the ranks."""

    id: str
    directory: Path
    first_step: int
    ranks: list[int]


def request(log_dir: Path, step: int, step_ms: float | None, ranks: list[int]) -> TimelineRequest:
    """Ask the ranks for a timeline of the next steps; raises OSError.

    The first step is chosen so that every rank reads the request before it.
    """
    lead = 3 + math.ceil(LEAD_S * 1000 / step_ms) if step_ms else 20
    first_step = step + lead
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{first_step}"
    directory = (log_dir / f"timeline-{name}").absolute()
    content = {"id": name, "directory": str(directory), "first_step": first_step, "steps": STEPS}
    write_json(log_dir / METRICS / REQUESTS, {"timeline": content})
    return TimelineRequest(name, directory, first_step, sorted(ranks))


def pending(log_dir: Path, ranks: list[int]) -> TimelineRequest | None:
    """The last request, for example of a server that has been restarted; None without one."""
    content = (read_json(log_dir / METRICS / REQUESTS) or {}).get("timeline")
    if not isinstance(content, dict) or not isinstance(content.get("first_step"), int):
        return None
    name = str(content.get("id", ""))
    directory = find(log_dir, name)
    return TimelineRequest(name, directory, content["first_step"], ranks) if directory else None


def status(asked: TimelineRequest, step: int, is_running: bool) -> dict[str, Any]:
    """`state`: waiting, recording, ready; or lost if the job ended, or continued, without all of the files."""
    done = [rank for rank in asked.ranks if (asked.directory / f"rank{rank}.json").exists()]
    last = asked.first_step + STEPS - 1
    if len(done) == len(asked.ranks):
        state = "ready"
    elif not is_running:
        state = "ready" if done else "lost"
    elif step < asked.first_step:
        state = "waiting"
    else:
        state = "recording"
    return {
        "id": asked.id,
        "state": state,
        "first_step": asked.first_step,
        "last_step": last,
        "done": len(done),
        "ranks": len(asked.ranks),
    }


def find(log_dir: Path, name: str) -> Path | None:
    """The directory of a timeline that a viewer asked for; None if the name is none, or is not there."""
    directory = log_dir / f"timeline-{name}"
    return directory if _ID.fullmatch(name) and directory.is_dir() else None


def merged(directory: Path) -> Path:
    """One trace of all ranks, for Perfetto; raises ConfigError if there is no complete timeline, or OSError."""
    return Path(merge(str(directory), read(str(directory))))


def html(directory: Path) -> str:
    """The timeline as a page; raises ConfigError if there is no complete timeline, or OSError."""
    return timeline_page.html(directory)

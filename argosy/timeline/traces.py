"""Read and validate the files rank0.json, rank1.json, … of a directory, one for every rank of one job."""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argosy.engine.errors import ConfigError

FORMAT, VERSION = "argosy.timeline", 1  # as engine/runtime/timeline.py writes them
ROLES = ("forward", "backward", "optimize", "communicate")
Event = dict[str, Any]
Key = tuple[str, int]
"""Group and sequence number of a collective: the same on all of its ranks."""
_REMEDY = "record again with fleetrun --timeline DIR"


@dataclass(frozen=True)
class Trace:
    """The recording of one rank; times are microseconds of its clock."""

    about: dict[str, Any]
    events: list[Event]

    @property
    def rank(self) -> int:
        return int(self.about["rank"])

    def of_kind(self, *kinds: str) -> Iterator[Event]:
        """The events of these categories: step, collective, wait, or a role."""
        return (e for e in self.events if e["ph"] == "X" and e["cat"] in kinds)

    def collectives(self) -> dict[Key, Event]:
        return {(e["args"]["group"], e["args"]["number"]): e for e in self.of_kind("collective")}


def read(directory: str | os.PathLike[str]) -> list[Trace]:
    """The traces of all ranks of the job, in the order of the ranks."""
    folder = Path(directory)
    if not folder.is_dir():
        raise ConfigError(f"there is no directory {folder}; give the DIR of fleetrun --timeline DIR")
    numbers = [re.fullmatch(r"rank(\d+)\.json", path.name) for path in folder.iterdir()]
    ranks = sorted(int(match[1]) for match in numbers if match)
    if not ranks:
        raise ConfigError(
            f"{folder} has no rank0.json, rank1.json, …: no timeline was written there; {_REMEDY}"
        )
    traces = [_read_one(folder / f"rank{rank}.json", rank) for rank in ranks]
    _check_same_job(folder, traces)
    return traces


def _check_same_job(folder: Path, traces: list[Trace]) -> None:
    first = traces[0]
    for other in traces[1:]:
        if other.about["size"] != first.about["size"]:
            raise ConfigError(
                f"{folder}: rank{first.rank}.json is from a job of {first.about['size']} ranks, "
                f"rank{other.rank}.json from one of {other.about['size']}; delete the older files, or {_REMEDY}"
            )
    missing = sorted(set(range(first.about["size"])) - {t.rank for t in traces})
    if missing:
        names = ", ".join(f"rank{rank}.json" for rank in missing)
        raise ConfigError(
            f"{folder} has the timelines of {len(traces)} of {first.about['size']} ranks, without {names}; copy them "
            "here if these ranks ran on another host, else see their logs"
        )


def _read_one(path: Path, rank: int) -> Trace:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as e:
        raise _invalid_trace(path, f"it is not JSON ({e})") from e
    about = content.get("otherData") if isinstance(content, dict) else None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise _invalid_trace(path, f"its otherData has no format {FORMAT!r}")
    if about.get("version") != VERSION:
        raise _invalid_trace(
            path, f"it has version {about.get('version')!r}, but this Argosy reads {VERSION}"
        )
    events = content.get("traceEvents")
    if not _is_complete(about) or not isinstance(events, list) or not all(map(_is_event, events)):
        raise _invalid_trace(path, "it is incomplete or malformed")
    if about["rank"] != rank or not 0 <= rank < about["size"]:
        raise _invalid_trace(path, f"it is from rank {about['rank']} of {about['size']}")
    trace = Trace(about, events)
    if not any(trace.of_kind("step")):
        raise _invalid_trace(path, "it has no step")
    return trace


def _invalid_trace(path: Path, why: str) -> ConfigError:
    return ConfigError(f"{path} is not a timeline of this rank: {why}; delete it and {_REMEDY}")


def _is_complete(about: dict[str, Any]) -> bool:
    numbers = (about.get("rank"), about.get("size"))
    texts = (about.get("host"), about.get("clock"), about.get("network"))
    anchors = about.get("anchors")
    return (
        all(isinstance(n, int) for n in numbers)
        and all(isinstance(w, str) for w in texts)
        and isinstance(anchors, list)
        and bool(anchors)
        and all(isinstance(a, list) and len(a) == 2 and all(isinstance(n, int) for n in a) for a in anchors)
    )


_COLLECTIVE_FIELDS = {
    "group": str,
    "number": int,
    "bytes": int,
    "queue_us": (int, float),
    "wait_us": (int, float),
}


def _is_event(event: Any) -> bool:
    """True if it has the fields that are read; metadata events (ph "M") have no time."""
    if not isinstance(event, dict) or not isinstance(event.get("args"), dict):
        return False
    if event.get("ph") == "M":
        return True
    times = (event.get("ts"), event.get("dur"))
    about = event["args"]
    wanted = _COLLECTIVE_FIELDS if event.get("cat") == "collective" else {}
    return (
        event.get("ph") == "X"
        and all(isinstance(event.get(key), str) for key in ("name", "cat"))
        and all(isinstance(t, int | float) for t in times)
        and all(isinstance(about.get(key), kind) for key, kind in wanted.items())  # type: ignore[arg-type]
    )

"""A job as the page shows it, and the changes from one poll to the next: a page gets all of it once, then changes."""

# SPDX-License-Identifier: Apache-2.0
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argosy.dashboard import log_files, timelines
from argosy.dashboard.step_grid import StepGrid
from argosy.engine.errors import ConfigError
from argosy.engine.metrics.job_directory import JobDirectory, Record
from argosy.engine.metrics.job_view import JobView, RankView, Series, phases

SLICE_S = 1.0
MAX_JOINED_BYTES = 32_000_000
"""Of more records, a dashboard that joins a job reads only a part."""
MAX_EVENTS = 300
MAX_SERIES = 64
"""Watched values beyond these are not shown; their number is."""
_EXAMPLES = "examples/s"
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, ZeroDivisionError)

Change = dict[str, Any]


@dataclass
class LiveJob:
    """The job in a directory, which may not have begun to write, and may be replaced by a new one."""

    path: Path
    num_malformed: int = 0
    """Records that could not be used."""
    _directory: JobDirectory | None = None
    _records: Iterator[Record] | None = None
    """The rest of the records, if the last poll has not read all."""
    _has_read: bool = False
    """Whether the records that there were at the start are read, or being read."""
    _joined_thin: int = 1
    """Of those records of steps, every so-manieth was read."""
    _started: Any = None
    _view: JobView = field(default_factory=JobView)
    _grid: StepGrid = field(default_factory=StepGrid)
    _published: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By section and key, what pages have."""
    _published_series: dict[str, tuple[list[int], list[Any]]] = field(default_factory=dict)
    _num_events: int = 0
    """Since the start of the job."""
    _num_published_events: int = 0
    _timeline: timelines.TimelineRequest | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _host: str = field(default_factory=socket.gethostname)

    @property
    def is_reading(self) -> bool:
        """True while there are records of a long job that have not been read yet: poll again at once."""
        return self._records is not None

    @property
    def log_dir(self) -> Path:
        """Where the logs are: of node 0 in a job of several nodes."""
        return self._directory.path if self._directory else self.path

    # --- polling --------------------------------------------------------------------------------------

    def poll(self) -> Change:
        """What has changed since the last call; {"reset": True, …} with everything if the job is another one."""
        with self._lock:
            job = self._find()
            if job is None:
                return self._sections({"job": {"state": "waiting", "directory": str(self.path)}})
            is_new = job.get("started") != self._started
            if is_new:
                self._reset(job)
            assert self._directory is not None
            self._read(self._directory)
            change = self._change(job)
            return {"reset": True} | self._snapshot() if is_new else change

    def snapshot(self) -> Change:
        """All that pages have been sent so far."""
        with self._lock:
            return {"reset": True} | self._snapshot()

    def _find(self) -> dict[str, Any] | None:
        if self._directory is None:
            try:
                self._directory = JobDirectory.find(self.path)
            except ConfigError:
                return None
        return self._directory.job()

    def _reset(self, job: dict[str, Any]) -> None:
        self._directory = JobDirectory(self.log_dir)
        self._started = job.get("started")
        self._view, self._grid = JobView(), StepGrid()
        self._published, self._published_series = {}, {}
        self._num_events = self._num_published_events = 0
        self._timeline = self._records = None
        self._has_read, self._joined_thin = False, 1
        self.num_malformed = 0

    def _read(self, directory: JobDirectory) -> None:
        """Add new records for at most SLICE_S, so that pages see something of a long job at once."""
        until = time.monotonic() + SLICE_S
        if self._records is None:
            # Of a long job that has run already, a part of the records is read; then all that follow.
            if not self._has_read:
                self._joined_thin = max(1, math.ceil(directory.size() / MAX_JOINED_BYTES))
            self._records = directory.stream(1 if self._has_read else self._joined_thin)
            self._has_read = True
        for record in self._records:
            self._add(record)
            if time.monotonic() > until:
                return
        self._records = None

    def _add(self, record: Record) -> None:
        try:
            self._view.update([record])
            if record.kind == "steps" and record.process.startswith("rank"):
                self._grid.add_record(record.number, record.fields)
            self._num_events += not record.process
        except _MALFORMED:
            self.num_malformed += 1

    # --- what pages have ------------------------------------------------------------------------------

    def _snapshot(self) -> Change:
        content: Change = {name: dict(entries) for name, entries in self._published.items()}
        content["series"] = {
            name: {"from": 0, "x": steps, "y": values} | self._about(name)
            for name, (steps, values) in self._published_series.items()
        }
        content["heat"] = self._grid.snapshot()
        content["events"] = self._events(self._num_published_events)
        return content

    def _sections(self, sections: dict[str, dict[str, Any]]) -> Change:
        """The entries that differ from what pages have."""
        change: Change = {}
        for name, entries in sections.items():
            known = self._published.setdefault(name, {})
            changed = {
                key: value for key, value in entries.items() if key not in known or known[key] != value
            }
            if changed:
                known |= changed
                change[name] = changed
        return change

    def _change(self, job: dict[str, Any]) -> Change:
        malformed = self.num_malformed + (self._directory.num_malformed if self._directory else 0)
        described = describe_job(job, self._host) | {
            "directory": str(self.log_dir),
            "strategy": _clean(self._view.strategy),
            "is_reading": self.is_reading,
            "thin": self._joined_thin,
            "num_malformed": malformed,
            "num_hidden_series": max(0, len(self._view.values) + 1 - MAX_SERIES),
        }
        is_running = described["state"] == "running"
        failed = {str(p["log"]) for p in described["processes"] if p["state"] in ("failed", "gone")}
        sizes = log_files.sizes(self.log_dir)
        change = self._sections(
            {
                "job": described,
                "overview": self._overview(is_running),
                "ranks": {str(rank.rank): _safely(describe_rank, rank) for rank in self._ranks()},
                "samples": {str(r.rank): _safely(phases, r.sample) for r in self._ranks() if r.sample},
                "servers": {str(n): _clean(_server(s)) for n, s in sorted(self._view.servers.items())},
                "profiles": self._profiles(),
                "logs": {"order": log_files.order(list(sizes), failed), "sizes": sizes},
                "timeline": self._timeline_status(is_running),
            }
        )
        if series := self._series():
            change["series"] = series
        if heat := self._grid.changes():
            change["heat"] = heat
        if new := self._num_events - self._num_published_events:
            change["events"] = self._events(new)
            self._num_published_events = self._num_events
        return change

    def _events(self, count: int) -> dict[str, Any]:
        """The last events, and the number of the first of them: a page that has it already leaves it out."""
        count = min(count, MAX_EVENTS, len(self._view.events))
        events = list(self._view.events)[len(self._view.events) - count :]
        return {"first": self._num_events - count, "list": [_clean(event) for event in events]}

    def _ranks(self) -> list[RankView]:
        return [rank for _, rank in sorted(self._view.ranks.items())]

    def _overview(self, is_running: bool) -> dict[str, Any]:
        view, now = self._view, time.time()
        try:
            slowest = view.slowest
            remaining = view.remaining_s(now) if is_running else None
            hits, misses = (
                sum(record.get(key) or 0 for rank in self._ranks() for record in rank.recent)
                for key in ("prefetch_hits", "prefetch_misses")
            )
            return {
                "time": round(now, 1),
                "step": view.step,
                "step_ms": _short(view.step_ms),
                "examples_per_s": _short(view.total_per_s("examples")),
                "sent_per_s": _short(view.total_per_s("sent_bytes")),
                "exposed": _short(view.exposed_fraction),
                "slowest": slowest.rank if slowest else None,
                "progress": _clean(view.progress),
                "remaining_s": None if remaining is None else round(remaining),
                "prefetch": _short(hits / (hits + misses)) if hits + misses else None,
            }
        except _MALFORMED:
            return {"time": round(now, 1), "step": view.step}

    def _profiles(self) -> dict[str, Any]:
        """When the profile of each rank was written: a page that shows it fetches it."""
        times = {}
        for rank in self._view.ranks:
            try:
                path = self.log_dir / "metrics" / f"rank{rank}.profile.json"
                times[str(rank)] = path.stat().st_mtime_ns // 1_000_000
            except OSError:
                continue  # no sampled step yet
        return times

    def _series(self) -> dict[str, Any]:
        """The points that differ from what pages have: from a step on, all are replaced."""
        shown = {_EXAMPLES: self._view.examples_per_s} | dict(
            list(self._view.values.items())[: MAX_SERIES - 1]
        )
        change = {}
        for name, series in shown.items():
            steps, values = list(series.steps), [_short(value) for value in series.values]
            known_steps, known_values = self._published_series.get(name, ([], []))
            same = 0
            limit = min(len(steps), len(known_steps))
            while same < limit and steps[same] == known_steps[same] and values[same] == known_values[same]:
                same += 1
            if same == len(steps) == len(known_steps):
                continue
            self._published_series[name] = (steps, values)
            first = steps[same] if same < len(steps) else steps[-1] + 1 if steps else 0
            if same < len(known_steps):
                first = min(first, known_steps[same])
            change[name] = {"from": first, "x": steps[same:], "y": values[same:]} | self._about(name)
        return change

    def _about(self, name: str) -> dict[str, Any]:
        series: Series | None = self._view.values.get(name)
        return {"reduce": series.reduce if series else "sum"}

    # --- timelines ------------------------------------------------------------------------------------

    def record_timeline(self) -> dict[str, Any]:
        """Ask the ranks for a timeline of the next steps; raises ConfigError if no rank runs, or OSError."""
        with self._lock:
            ranks = [r.rank for r in self._ranks() if r.outcome is None and r.step]
            state = (self._published.get("job") or {}).get("state")
            if state != "running" or not ranks:
                raise ConfigError(
                    f"the job is {state or 'not there'}: no rank runs that could record a timeline"
                )
            self._timeline = timelines.request(self.log_dir, self._view.step, self._view.step_ms, ranks)
            return self._timeline_status(True)

    def _timeline_status(self, is_running: bool) -> dict[str, Any]:
        if self._timeline is None:
            self._timeline = timelines.pending(self.log_dir, [r.rank for r in self._ranks()])
        return {} if self._timeline is None else timelines.status(self._timeline, self._view.step, is_running)


# --- descriptions -------------------------------------------------------------------------------------


def describe_job(job: dict[str, Any], this_host: str) -> dict[str, Any]:
    """What the page shows of job.json. A process of this host that no longer exists is shown as gone."""
    state = str(job.get("state") or "unknown")
    is_local = job.get("host") == this_host
    launcher = job.get("launcher_pid")
    if state == "running" and is_local and isinstance(launcher, int) and not _is_alive(launcher):
        state = "gone"
    processes = []
    for process in job.get("processes") or []:
        if not isinstance(process, dict):
            continue
        shown = {
            key: _clean(process.get(key))
            for key in ("role", "rank", "local_rank", "host", "node", "pid", "log", "exit")
        }
        shown["state"] = str(process.get("state") or "unknown")
        shown["role"] = "server" if shown["role"] == "server" else "worker"
        pid = process.get("pid")
        is_here = process.get("host") == this_host and not process.get("node")
        if shown["state"] == "running" and is_here and isinstance(pid, int) and not _is_alive(pid):
            shown["state"] = "gone"
        processes.append(shown)
    keys = (
        "mode",
        "command",
        "script",
        "options",
        "host",
        "nodes",
        "started",
        "ended",
        "exit_code",
        "restart",
    )
    return {key: _clean(job.get(key)) for key in (*keys, "versions", "failure")} | {
        "state": state,
        "processes": processes,
    }


def describe_rank(rank: RankView) -> dict[str, Any]:
    """A row of the table of ranks."""
    last = rank.recent[-1] if rank.recent else {}
    cpu, wall = rank.per_s("cpu_s"), rank.per_s("delay_s")
    return {
        "host": _clean(rank.start.get("host")),
        "pid": _clean(rank.start.get("pid")),
        "restart": _clean(rank.start.get("restart")),
        "time": round(rank.time, 1),
        "step": rank.step,
        "period_ms": _short(rank.mean_ms("period_ms")),
        "busy_ms": _short(rank.mean_ms("busy_ms")),
        "exposed_ms": _short(rank.mean_ms("exposed_ms")),
        "outside_ms": _short(rank.mean_ms("outside_ms")),
        "input_ms": _short(rank.mean_ms("input_ms")),
        "examples_per_s": _short(rank.per_s("examples")),
        "sent_per_s": _short(rank.per_s("sent_bytes")),
        "cpu": _short(cpu),
        "delay": _short(wall),
        "rss": _clean(last.get("rss")),
        "peak_rss": _clean(last.get("peak_rss")),
        "outcome": rank.outcome,
    }


def _server(server: Any) -> dict[str, Any]:
    return {
        "host": server.start.get("host"),
        "pid": server.start.get("pid"),
        "time": server.time,
        "outcome": server.outcome,
        "record": server.tables,
    }


def _safely(describe: Any, subject: Any) -> dict[str, Any]:
    """A malformed record must not hide the others."""
    try:
        described: dict[str, Any] = describe(subject)
        return described
    except _MALFORMED:
        return {}


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # another user's
    return pid > 0


def _short(value: Any) -> Any:
    """Five digits are enough for a chart; NaN and infinity as text, because JSON has none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    return value if isinstance(value, int) else float(f"{value:.5g}")


def _clean(value: Any) -> Any:
    """A value of a JSON file without NaN and infinity."""
    match value:
        case dict():
            return {str(key): _clean(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_clean(entry) for entry in value]
        case float() if not math.isfinite(value):
            return str(value)
        case _:
            return value

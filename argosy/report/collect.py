"""Read a job's directory into a bounded summary of the whole run, whatever its state.

metrics/*.jsonl ──▶ JobView (curves over steps) and totals, bins and samples per rank
job.json, profiles, error files, ends of logs ──▶ as they are, with long texts cut

Missing and malformed files are left out and counted, so that a report exists after every failure.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import math
import os
import re
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argosy.engine.launch import logs
from argosy.engine.launch.failure_report import ErrorRecord, read_error
from argosy.engine.metrics.job_directory import JobDirectory, Record, read_json
from argosy.engine.metrics.job_view import JobView

NUM_BINS = 240
"""Points in time of a heat map or curve; a bin is a power of two of seconds."""
MAX_BYTES = 32_000_000
"""Of larger records only a part is read: the report at the end of a job must not take minutes."""
WARM_UP_STEPS = 2
"""Steps at the start of a process that compile and warm up: not counted in means."""
NUM_HISTOGRAMS = 8
"""Quantiles of the step time are those of the first ranks: steps end together, and each entry costs time."""
NUM_SAMPLES = 256
NUM_LINES = 25
"""Last lines of each log."""
MAX_LOGS = 72
"""Logs that are shown: the failed ones first."""
_MAX_LINE_CHARS, _MAX_TEXT_CHARS = 400, 20_000
_PER_STEP = ("period_ms", "busy_ms", "exposed_ms", "outside_ms", "input_ms")
_COUNTS = (
    *("examples", "sent_bytes", "cpu_s", "wall_s", "delay_s", "minor_faults", "major_faults", "preempted"),
    *("prefetch_hits", "prefetch_misses"),
)
_DOCTOR = "doctor.json"
_LOG = re.compile(r"(?:node(\d+)\.)?(worker|server)log\.(\d+)")


@dataclass
class Bins:
    """Means over time in at most NUM_BINS bins, which double their width when they do not suffice."""

    width_s: float = 1.0
    sums: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def add(self, at_s: float, value: float, weight: float = 1.0) -> None:
        """Add a value at a time after the start of the job."""
        if not (math.isfinite(value) and math.isfinite(at_s)):
            raise ValueError(f"value {value} at {at_s}")
        while at_s >= NUM_BINS * self.width_s:
            self._halve()
        place = max(0, int(at_s / self.width_s))
        missing = place + 1 - len(self.sums)
        if missing > 0:
            self.sums += [0.0] * missing
            self.weights += [0.0] * missing
        self.sums[place] += value * weight
        self.weights[place] += weight

    def means(self, width_s: float | None = None) -> list[float | None]:
        """A value per bin, None where there is none; with a larger width, that of other bins."""
        while width_s is not None and self.width_s < width_s:
            self._halve()
        return [s / w if w else None for s, w in zip(self.sums, self.weights, strict=True)]

    def _halve(self) -> None:
        self.width_s *= 2
        for values in (self.sums, self.weights):
            values[:] = [sum(values[i : i + 2]) for i in range(0, len(values), 2)]


@dataclass
class RankRun:
    """The whole run of one rank or worker, over all of its incarnations."""

    rank: int
    starts: list[dict[str, Any]] = field(default_factory=list)
    """The `start` records, the last ones."""
    num_starts: int = 0
    steps: int = 0
    """Steps that are counted in `per_step`."""
    per_step: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_PER_STEP, 0.0))
    """Sums of milliseconds over those steps."""
    counts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_COUNTS, 0.0))
    periods: Counter[int] = field(default_factory=Counter)
    """Histogram of the step times: logarithmic, see `_bucket`."""
    period: Bins = field(default_factory=Bins)
    rss: Bins = field(default_factory=Bins)
    peak_rss: int = 0
    mhz: Bins = field(default_factory=Bins)
    samples: list[dict[str, Any]] = field(default_factory=list)
    last_time: float = 0.0
    outcome: str | None = None
    profile: dict[str, Any] | None = None
    _seen: int = 0
    """Steps since the start of this incarnation."""

    def mean_ms(self, key: str) -> float | None:
        """The mean per step of a duration; None without steps."""
        return self.per_step[key] / self.steps if self.steps else None

    def add_steps(self, record: Record, at_s: float) -> None:
        """Add a `steps` record; raises KeyError, TypeError or ValueError if it is malformed."""
        steps, group = int(record["steps"]), int(record.get("group") or 1)
        skipped = min(steps, max(0, WARM_UP_STEPS - self._seen))
        self._seen += steps
        first = math.ceil(skipped / group)  # the first entry that is counted
        sums = {key: _sum(record.get(key) or [], first, steps, group) for key in _PER_STEP}
        counted = max(0, steps - first * group) if record.get("period_ms") else 0
        self.steps += counted
        for key, total in sums.items():
            self.per_step[key] += total
        if self.rank < NUM_HISTOGRAMS:
            for value in record.get("period_ms", [])[first:]:
                self.periods[_bucket(value)] += group
        for key in _COUNTS:
            self.counts[key] += record.get(key) or 0
        if counted:
            self.period.add(at_s, sums["period_ms"] / counted, counted)
        if (rss := record.get("rss")) is not None:
            self.rss.add(at_s, float(rss))
        self.peak_rss = max(self.peak_rss, int(record.get("peak_rss") or record.get("rss") or 0))
        if (mhz := record.get("mhz")) is not None:
            self.mhz.add(at_s, float(mhz))


def _sum(entries: list[float], first: int, steps: int, group: int) -> float:
    """The sum over the steps: each entry from `first` on is a mean of `group` steps, the last one of the rest."""
    if len(entries) <= first:
        return 0.0
    rest = steps - group * (len(entries) - 1)
    return float(group * sum(entries[first:-1]) + rest * entries[-1])


def _bucket(ms: float) -> int:
    """The bucket of a duration, 0.5 % wide; `bucket_ms` is its inverse."""
    return round(math.log(max(ms, 1e-6)) * 200)


def bucket_ms(bucket: int) -> float:
    """The duration of a bucket of `RankRun.periods`."""
    return math.exp(bucket / 200)


@dataclass
class ServerRun:
    """The whole run of one parameter server."""

    number: int
    starts: list[dict[str, Any]] = field(default_factory=list)
    requests: dict[str, dict[str, float]] = field(default_factory=dict)
    """By kind: `count`, `bytes`, and the largest `p50_ms`, `p90_ms`, `p99_ms` of a second."""
    rate: Bins = field(default_factory=Bins)
    """Requests per second."""
    p99: Bins = field(default_factory=Bins)
    queue: Bins = field(default_factory=Bins)
    max_queue: int = 0
    max_staleness: float | None = None
    pulled: Counter[str] = field(default_factory=Counter)
    pushed: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    last: dict[str, Any] = field(default_factory=dict)
    """The last `tables` record."""
    peak_rss: int = 0
    outcome: str | None = None

    def add_tables(self, record: Record, at_s: float) -> None:
        """Add a `tables` record; raises KeyError, TypeError or ValueError if it is malformed."""
        interval = float(record.get("interval_s") or 1.0)
        total, slowest = 0.0, 0.0
        for kind, entry in (record.get("requests") or {}).items():
            known = self.requests.setdefault(str(kind), dict.fromkeys(("count", "bytes"), 0.0))
            known["count"] += float(entry.get("count") or 0)
            known["bytes"] += float(entry.get("bytes") or 0)
            total += float(entry.get("count") or 0)
            for key in ("p50_ms", "p90_ms", "p99_ms"):
                known[key] = max(known.get(key, 0.0), float(entry.get(key) or 0.0))
            slowest = max(slowest, float(entry.get("p99_ms") or 0.0))
        self.rate.add(at_s, total / interval)
        self.p99.add(at_s, slowest)
        queue = int(record.get("queue") or 0)
        self.queue.add(at_s, queue)
        self.max_queue = max(self.max_queue, queue)
        staleness = (record.get("staleness") or {}).get("max")
        if staleness is not None:
            self.max_staleness = max(self.max_staleness or 0.0, float(staleness))
        for table in record.get("tables") or []:
            self.pulled[str(table["name"])] += int(table.get("pulled_rows") or 0)
            self.pushed[str(table["name"])] += int(table.get("pushed_rows") or 0)
        self.seconds += interval
        self.peak_rss = max(self.peak_rss, int(record.get("rss") or 0))
        self.last = record.fields


@dataclass
class ProcessOutput:
    """What a process left behind besides its records."""

    name: str
    """rank 0, worker 0 or server 0."""
    log: str
    """The name of the file."""
    lines: list[str] = field(default_factory=list)
    error: ErrorRecord | None = None


@dataclass
class JobRun:
    """All that a report shows, before it is analysed."""

    path: Path
    job: dict[str, Any]
    view: JobView
    ranks: dict[int, RankRun] = field(default_factory=dict)
    servers: dict[int, ServerRun] = field(default_factory=dict)
    outputs: list[ProcessOutput] = field(default_factory=list)
    launcher_log: list[str] = field(default_factory=list)
    doctor: dict[str, Any] | None = None
    num_malformed: int = 0
    started: float = 0.0
    last_time: float = 0.0
    thin: int = 1
    """Only every so-manieth record of the steps was read: sums are estimates."""
    is_stale: bool = False
    """job.json says that the job runs, but its launcher is gone."""

    @property
    def name(self) -> str:
        """A short name: the directory, and its parent if that says more."""
        path = self.path.parent if self.path.name.startswith("node-") else self.path
        path = path.absolute()
        return f"{path.parent.name}/{path.name}" if path.parent.name else path.name


def collect(directory: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> JobRun:
    """Read a job's directory, of its records about `max_bytes`; raises ConfigError if there is none."""
    source = JobDirectory.find(directory)
    job = source.job()
    run = JobRun(source.path, job, JobView())
    run.started = _number(job.get("started")) or 0.0
    run.thin = max(1, math.ceil(source.size() / max_bytes))
    for record in source.stream(run.thin):
        try:
            _add(run, record)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
            run.num_malformed += 1
    run.num_malformed += source.num_malformed
    for rank in run.ranks.values():
        rank.profile = source.profile(rank.rank)
        for key in ("examples", "sent_bytes"):
            rank.counts[key] *= run.thin
    run.outputs = list(_outputs(source.path, job))
    run.launcher_log = last_lines(source.path / logs.LAUNCHER_LOG)
    run.doctor = read_json(source.path / _DOCTOR)
    run.is_stale = _is_stale(job)
    return run


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None


def _add(run: JobRun, record: Record) -> None:
    if not math.isfinite(record.time):
        raise ValueError(f"time {record.time}")
    if not run.started:
        run.started = record.time
    run.last_time = max(run.last_time, record.time)
    at_s = record.time - run.started
    run.view.update([record])
    if not record.process:
        return
    if record.process.startswith("server"):
        server = run.servers.setdefault(record.number, ServerRun(record.number))
        if record.kind == "start":
            server.starts = [*server.starts, record.fields][-3:]
        elif record.kind == "tables":
            server.add_tables(record, at_s)
        elif record.kind == "end":
            server.outcome = cut(record.get("outcome", ""))
        return
    rank = run.ranks.setdefault(record.number, RankRun(record.number))
    rank.last_time = record.time
    match record.kind:
        case "start":
            rank.starts = [*rank.starts, record.fields][-3:]
            rank.num_starts += 1
            rank._seen = 0
            rank.outcome = None
        case "steps":
            rank.add_steps(record, at_s)
        case "sample":
            rank.samples = [*rank.samples, record.fields][-NUM_SAMPLES:]
        case "end":
            rank.outcome = cut(record.get("outcome", ""))


def _outputs(path: Path, job: dict[str, Any]) -> Iterator[ProcessOutput]:
    """Of the processes in job.json, else of the logs in the directory; failed processes first."""
    files = _log_files(path, job)
    outputs = []
    for name, log in files:
        error = read_error(logs.error_file(str(log)))
        outputs.append(ProcessOutput(name, log.name, last_lines(log), error))
    outputs.sort(key=lambda output: output.error is None)
    yield from outputs[:MAX_LOGS]


def _log_files(path: Path, job: dict[str, Any]) -> list[tuple[str, Path]]:
    files: dict[Path, str] = {}
    processes = job.get("processes")
    for process in processes if isinstance(processes, list) else []:
        if not isinstance(process, dict):
            continue
        # Its name alone: a path in the file is relative to the launcher's directory, and may be one of another host.
        log = path / os.path.basename(str(process.get("log", "")))
        if _LOG.fullmatch(log.name):
            files[log] = f"{process.get('role', 'rank')} {process.get('rank', '?')}"
    try:
        names = sorted(filter(_LOG.fullmatch, os.listdir(path)), key=lambda name: (len(name), name))
    except OSError:
        names = []
    for name in names:
        match = _LOG.fullmatch(name)
        assert match is not None, "the names are filtered"
        where = f" of node {match[1]}" if match[1] else ""
        kind = "server" if match[2] == "server" else "process"
        files.setdefault(path / name, f"{kind} {match[3]}{where}")
    return [(name, log) for log, name in files.items()]


def last_lines(path: Path, count: int = NUM_LINES) -> list[str]:
    """The last lines of a log, each cut to a bounded length."""
    return [cut(line, _MAX_LINE_CHARS) for line in logs.last_lines(str(path), count)]


def cut(text: Any, length: int = _MAX_TEXT_CHARS) -> str:
    """A text of at most this length, with a note where it was longer."""
    text = text if isinstance(text, str) else json.dumps(text, default=str)
    return text if len(text) <= length else f"{text[:length]} … ({len(text) - length:,} more characters)"


def _is_stale(job: dict[str, Any]) -> bool:
    pid = job.get("launcher_pid")
    if job.get("state") != "running" or not isinstance(pid, int) or job.get("host") != socket.gethostname():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False

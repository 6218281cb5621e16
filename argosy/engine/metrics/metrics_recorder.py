"""Write the records of this process to the job directory (docs/reference/job-directory.md).

    every training step     StepTimes ──▶ MetricsRecorder.add_step ──▶ a `steps` record, at most two per second
    metrics.log, watch      values ─────▶ MetricsRecorder.write("values", …) ──▶ rank0.jsonl, and the callbacks

Nothing is written unless ARGOSY_METRICS_DIR is set, as fleetrun does. A full disk ends the recording, not the training.
"""

# SPDX-License-Identifier: Apache-2.0
import atexit
import json
import math
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from argosy.engine import env, process_effects
from argosy.engine.log import logger
from argosy.engine.metrics.job_directory import VERSION, records_file
from argosy.engine.metrics.links import LinkMeter
from argosy.engine.metrics.resources import Usage, frequency_mhz, usage
from argosy.engine.version import VERSION as ARGOSY_VERSION

PERIOD_S = 0.5
"""The least time between two `steps` records in a job of up to 64 ranks; with more ranks it grows in proportion."""
MAX_PERIOD_S = 10.0
MAX_ENTRIES = 20
"""The most entries of a list in a `steps` record."""
WATCHED_STEPS = 512
"""Watched fetches of the first steps are all written, then every 2nd up to twice as many, every 4th, and so on.

By number, not by time: the same steps on all ranks, so that they can be reduced over the ranks.
"""
_DURATIONS = ("period", "busy", "exposed", "outside", "input")

Callback = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One training step; times in nanoseconds."""

    period: int
    """From the end of the previous step to the end of this one."""
    busy: int
    exposed: int
    outside: int
    input: int
    examples: int
    sent_bytes: int
    prefetch_hits: int = 0
    prefetch_misses: int = 0


@dataclass(frozen=True)
class JobProcess:
    """Which process of the job writes the records."""

    role: str
    rank: int
    size: int
    local_rank: int
    restart: int = 0


class MetricsRecorder:
    """Appends records to a file, and passes them to callbacks. Threads may share one."""

    def __init__(self, path: Path | None, process: JobProcess) -> None:
        self.path, self.process = path, process
        self.step = 0
        """Completed training steps, over all restarts of a training that is resumed from a checkpoint."""
        self.callbacks: list[Callback] = []
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._period_s = min(MAX_PERIOD_S, PERIOD_S * max(1.0, process.size / 64))
        self._file = None if path is None else _opened(path)
        self._steps: list[StepTimes] = []
        self._recorded_at = time.perf_counter()
        self._usage: Usage | None = None
        self._links = LinkMeter()
        self._watched: dict[str, Any] | None = None
        self._progress: dict[str, Any] | None = None
        self._progress_at = 0.0
        if self._file is not None:
            self.write("start", **_start_fields(process))
            self._usage = usage()

    @property
    def is_on(self) -> bool:
        """Whether records are written."""
        return self._file is not None or bool(self.callbacks)

    def write(self, kind: str, **fields: Any) -> None:
        """Append a record, and pass it to the callbacks."""
        if not self.is_on or os.getpid() != self._pid:  # a forked reader is not the rank
            return
        record = {"kind": kind, "time": round(time.time(), 3), **fields}
        with self._lock:
            self._append(record)
            callbacks = list(self.callbacks)
        for callback in callbacks:
            callback(dict(record))

    def _append(self, record: dict[str, Any]) -> None:
        if self._file is None:
            return
        try:
            line = json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"
            os.write(self._file, line)
        except OSError as e:
            os.close(self._file)
            self._file = None
            logger.warning(
                "cannot write %s (%s); the views of this job show no more of this process",
                self.path,
                e.strerror,
            )

    # --- training steps -------------------------------------------------------------------------------

    def add_step(self, times: StepTimes) -> None:
        """Count a step; writes a record if the last one is old enough."""
        with self._lock:
            self.step += 1
            self._steps.append(times)
            if self.step == 1 or time.perf_counter() - self._recorded_at >= self._period_s:
                self._write_steps()

    def _write_steps(self) -> None:
        steps, self._steps = self._steps, []
        now, used = time.perf_counter(), usage()
        wall_s, self._recorded_at = now - self._recorded_at, now
        before, self._usage = self._usage or used, used
        group = math.ceil(len(steps) / MAX_ENTRIES)
        groups = [steps[i : i + group] for i in range(0, len(steps), group)]
        lists = {
            f"{name}_ms": [round(sum(getattr(s, name) for s in g) / len(g) / 1e6, 3) for g in groups]
            for name in _DURATIONS
        }
        counts = {
            name: sum(getattr(s, name) for s in steps)
            for name in ("examples", "sent_bytes", "prefetch_hits", "prefetch_misses")
        }
        self.write(
            "steps",
            step=self.step,
            steps=len(steps),
            group=group,
            **lists,
            **counts,
            wall_s=round(wall_s, 4),
            **used.since(before),
            mhz=frequency_mhz(),
            **({"links": links} if (links := self._links.take()) else {}),
        )

    # --- values and progress --------------------------------------------------------------------------

    def log(self, step: int, values: Mapping[str, float], reduce: Mapping[str, str]) -> None:
        """Write values of this rank; the readers reduce them over the ranks."""
        shown = {name: value if math.isfinite(value) else str(value) for name, value in values.items()}
        self.write("values", step=step, values=shown, reduce=dict(reduce))

    def log_watched(self, values: Mapping[str, float], reduce: Mapping[str, str]) -> None:
        """Write fetched values of the last step, unless that step is left out; the last ones are written."""
        with self._lock:
            self._watched = {"step": self.step, "values": values, "reduce": reduce}
            if self.step % (1 << (self.step // WATCHED_STEPS).bit_length()) == 0:
                self._write_watched()

    def _write_watched(self) -> None:
        if self._watched is not None:
            watched, self._watched = self._watched, None
            self.log(**watched)

    def progress(
        self,
        batch: int | None = None,
        batches: int | None = None,
        epoch: int | None = None,
        epochs: int | None = None,
        what: str = "",
    ) -> None:
        """Write how far the training is: `batch` of `batches` are done in `epoch` (from 1) of `epochs`.

        At most two records per second; the last one is always written.
        """
        if not self.is_on:
            return
        with self._lock:
            self._progress = {
                "epoch": epoch,
                "epochs": epochs,
                "batch": batch,
                "batches": batches,
                "what": what,
            }
            if time.perf_counter() - self._progress_at >= self._period_s:
                self._write_progress()

    def _write_progress(self) -> None:
        if self._progress is not None:
            progress, self._progress, self._progress_at = self._progress, None, time.perf_counter()
            self.write("progress", **progress)

    def close(self, outcome: str = "done") -> None:
        """Write what is left and the last record; later calls do nothing."""
        with self._lock:
            if self._file is None or os.getpid() != self._pid:
                return
            if self._steps:
                self._write_steps()
            self._write_watched()
            self._write_progress()
            self.write("end", outcome=outcome)
            if self._file is not None:  # the last write may have failed
                os.close(self._file)
                self._file = None


def _opened(path: Path) -> int | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as e:
        logger.warning(
            "cannot write %s (%s); the views of this job will not show this process", path, e.strerror
        )
        return None


def _start_fields(process: JobProcess) -> dict[str, Any]:
    versions = {"argosy": ARGOSY_VERSION, "python": platform.python_version(), "torch": _version("torch")}
    return {
        "version": VERSION,
        **{name: getattr(process, name) for name in JobProcess.__dataclass_fields__},
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "threads": len(os.sched_getaffinity(0)),
        "versions": versions,
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


# --- the recorder of this process ---------------------------------------------------------------------

_recorder: MetricsRecorder | None = None
_creation = threading.Lock()


def recorder() -> MetricsRecorder:
    """The recorder of this rank or worker, created at first use; it has no file unless fleetrun names a directory."""
    global _recorder  # noqa: PLW0603  (one per process)
    if _recorder is None:
        with _creation:
            if _recorder is None:
                _recorder = _create()
    return _recorder


def start_server(number: int, size: int) -> MetricsRecorder:
    """Make the recorder of this process that of parameter server `number`."""
    global _recorder  # noqa: PLW0603
    with _creation:
        _recorder = _create(JobProcess("server", number, size, number, env.restart()))
    return _recorder


def _create(process: JobProcess | None = None) -> MetricsRecorder:
    is_early = process is None and env.is_server(env.variables())  # `start_server` follows
    directory = None if is_early else env.metrics_dir()
    process = process or _this_rank()
    path = None if directory is None else records_file(directory, process.role, process.rank)
    created = MetricsRecorder(path, process)
    if path is not None:
        process_effects.install("metrics-at-exit", lambda: _close_at_exit(created))
    return created


def _this_rank() -> JobProcess:
    launched = env.launched()
    role = "worker" if env.is_worker() else "rank"
    return JobProcess(role, launched.rank, launched.size, launched.local_rank or 0, env.restart())


def _close_at_exit(created: MetricsRecorder) -> process_effects.Undo:
    def close() -> None:
        created.close(_outcome())

    def undo() -> None:
        atexit.unregister(close)
        close()

    atexit.register(close)
    return undo


def _outcome() -> str:
    """How this process ends: the exception that left the script, if fleetrun's bootstrap has recorded one."""
    error = getattr(sys, "last_value", None)
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return "done"
    return f"{type(error).__name__}: {error}"[:500]

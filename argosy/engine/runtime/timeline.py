"""Record a trace of training steps on each rank, in the format of Chrome and Perfetto.

    DIR/rank0.json    step      ▕ step 3                    ▏▕ step 4 …     one event per run
                      compute   ▕▏▕▏▕▏▕▏▕▏▕▏▕▏      ▕▏▕▏▕▏                  one event per node
                      blocked                 ▕────▏                        the main thread waits for …
                      dp              ▕────────────▏                        … a collective of communicator dp

`argosy.timeline` reads what this file writes.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import atexit
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argosy.engine import env, process_effects
from argosy.engine.collective import is_connected, trace, world
from argosy.engine.collective.trace import TracedCollective
from argosy.engine.errors import ConfigError
from argosy.engine.log import logger
from argosy.engine.runtime.atomic_files import bytes_writer, replace_files
from argosy.engine.runtime.codegen import Span
from argosy.engine.runtime.compile import Compiled, TimedStep

FORMAT, VERSION = "argosy.timeline", 1
_STEP, _COMPUTE, _BLOCKED, _FIRST_LANE = 1, 2, 3, 4
Event = dict[str, Any]


@dataclass
class Run:
    """One recorded run of a program that trains."""

    number: int
    program: str
    timed: TimedStep
    began_ns: int
    ended_ns: int = 0
    spans: list[Span] = field(default_factory=list)


class Timeline:
    """Counts the training steps of this process, and records the requested ones."""

    def __init__(self, directory: Path, steps: tuple[int, int]) -> None:
        self.directory, self.steps = directory, steps
        self.num_steps = 0
        self.runs: list[Run] = []
        self.collectives: list[TracedCollective] = []
        self.anchors = [_anchor()]
        self._pid = os.getpid()
        self._remove_old_trace()

    def _remove_old_trace(self) -> None:
        """Delete the trace of an earlier job, so that it is not mistaken for one of this job."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.path.unlink(missing_ok=True)
        except OSError as e:
            raise ConfigError(
                f"no timeline can be written to {self.directory}: {e.strerror}; give a writable directory"
            ) from e

    @property
    def path(self) -> Path:
        return self.directory / f"rank{_rank_and_size()[0]}.json"

    def begin(self, compiled: Compiled, program: str) -> Run | None:
        """Start recording a run; None unless it is a training step on all ranks, and one of the requested steps."""
        if not compiled.trains or not (compiled.schedule or world().size == 1):
            return None
        self.num_steps += 1
        if self.num_steps > self.steps[1]:  # the last one failed, or ran out of data
            stop(self)
        if not self.steps[0] <= self.num_steps <= self.steps[1]:
            return None
        timed = compiled.timed
        timed.spans.clear()  # of a run that failed
        trace.recording = self.collectives
        return Run(self.num_steps, program, timed, time.perf_counter_ns())

    def end(self, run: Run) -> None:
        """Finish a run; the last requested one writes the file."""
        run.ended_ns = time.perf_counter_ns()
        run.spans = list(run.timed.spans)
        self.runs.append(run)
        if run.number == self.steps[1]:
            stop(self)

    def write(self) -> None:
        """Write the file, in the recording process only; log, but do not raise, if that fails, as on a full disk."""
        if os.getpid() != self._pid:
            return
        first, last = self.steps
        if not self.runs:
            logger.warning(
                "timeline: nothing was recorded: steps %d to %d were requested, and %d were trained; train longer, or "
                "request others: fleetrun --timeline_steps, ARGOSY_TIMELINE_STEPS, record(steps=…)",
                *(first, last, self.num_steps),
            )
            return
        self.anchors.append(_anchor())
        try:
            text = json.dumps(self.trace(), separators=(",", ":"), allow_nan=False)
            replace_files({self.path: bytes_writer(text.encode())})
        except OSError as e:
            logger.error("timeline: %s could not be written: %s; free disk space", self.path, e)
            return
        logger.info("timeline: %d steps in %s; see python -m argosy.timeline", len(self.runs), self.path)

    def trace(self) -> dict[str, Any]:
        """The content of the file."""
        rank, size = _rank_and_size()
        lanes = _lanes(_finished(self.collectives))
        tracks = {_STEP: "step", _COMPUTE: "compute", _BLOCKED: "blocked"}
        tracks |= {_FIRST_LANE + i: name for i, name in enumerate(lanes)}
        events = [*_names(rank, tracks), *(e for run in self.runs for e in _run_events(run))]
        for i, lane in enumerate(lanes.values()):
            events += [e for collective in lane for e in _collective_events(collective, _FIRST_LANE + i)]
        about = {"format": FORMAT, "version": VERSION, "rank": rank, "size": size}
        about |= {"host": socket.gethostname(), "pid": self._pid, "anchors": self.anchors}
        about |= {"clock": _clock(), "network": _namespace("net")}
        return {
            "displayTimeUnit": "ms",
            "otherData": about,
            "traceEvents": [e | {"pid": rank} for e in events],
        }


# --- the timeline of this process ---------------------------------------------------------------------

_current: Timeline | None = None
_was_asked = False


def start(directory: Path, steps: tuple[int, int]) -> Timeline:
    """Count training steps from here on, and record the requested ones."""
    if _current is not None:
        raise ConfigError(
            f"a timeline is being recorded to {_current.directory} already (of steps {_current.steps[0]} to "
            f"{_current.steps[1]}); there can be one at a time: end it first, or omit --timeline"
        )
    return attach(Timeline(directory, steps))


def attach(timeline: Timeline) -> Timeline:
    """Let the executor report its runs to this timeline; raises if there is another one."""
    global _current  # noqa: PLW0603  (one timeline per process)
    if _current is not None:
        raise ConfigError(f"a timeline is being recorded to {_current.directory} already; end it first")
    _current = timeline
    return timeline


def is_attached() -> bool:
    """True while the executor reports its runs to a timeline."""
    return _current is not None


def detach(timeline: Timeline) -> None:
    """Stop recording without writing a file; a second call does nothing."""
    global _current  # noqa: PLW0603
    if timeline is _current:
        _current = trace.recording = None


def stop(timeline: Timeline) -> None:
    """Stop recording and write the file; a second call does nothing."""
    if timeline is _current:
        detach(timeline)
        timeline.write()


def start_if_asked() -> None:
    """Start the timeline that the environment requests, once per process."""
    global _was_asked  # noqa: PLW0603
    if _was_asked:
        return
    requested = env.timeline()
    _was_asked = True
    if requested is not None:
        timeline = start(*requested)
        process_effects.install("timeline-at-exit", lambda: _stop_at_exit(timeline))


def _stop_at_exit(timeline: Timeline) -> process_effects.Undo:
    def stop_it() -> None:
        stop(timeline)

    def undo() -> None:
        atexit.unregister(stop_it)
        stop_it()

    atexit.register(stop_it)
    return undo


@contextmanager
def recording(directory: Path, steps: tuple[int, int]) -> Iterator[None]:
    """Record the training steps inside; the file is written after the last of them, or at the end."""
    timeline = start(directory, steps)
    try:
        yield
    finally:
        stop(timeline)


def begin(compiled: Compiled, program: str) -> Run | None:
    """Called by the executor before a run; None if the run is not recorded."""
    return None if _current is None else _current.begin(compiled, program)


def end(run: Run) -> None:
    """Called by the executor after a recorded run."""
    if _current is not None:
        _current.end(run)


# --- the trace ----------------------------------------------------------------------------------------


def _finished(recorded: list[TracedCollective]) -> list[TracedCollective]:
    """The completed collectives, each with its begin, in the order in which they began."""
    ends: dict[str, int] = {}
    finished = []
    for record in recorded:
        record.ended_ns = record.ended_ns or (record.waited[-1][1] if record.waited else 0)
        if not record.ended_ns:
            logger.warning("timeline: %s of %s has not ended; it is omitted", record.collective, record.what)
            continue
        record.began_ns = record.began_ns or max(record.started_ns, ends.get(record.group, 0))
        record.began_ns = min(record.began_ns, record.ended_ns)
        ends[record.group] = max(ends.get(record.group, 0), record.ended_ns)
        finished.append(record)
    return sorted(finished, key=lambda record: record.began_ns)


def _lanes(finished: list[TracedCollective]) -> dict[str, list[TracedCollective]]:
    """Tracks by name: one per communicator, and more where collectives overlap, which a track cannot show."""
    lanes: dict[str, list[TracedCollective]] = {}
    for record in finished:
        name = communicator = record.group.partition("/")[0]
        number = 1
        while name in lanes and lanes[name][-1].ended_ns > record.began_ns:
            number += 1
            name = f"{communicator} ({number})"
        lanes.setdefault(name, []).append(record)
    return dict(sorted(lanes.items()))


def _names(rank: int, tracks: dict[int, str]) -> Iterator[Event]:
    title = f"rank {rank} ({socket.gethostname()})"
    yield {"ph": "M", "name": "process_name", "args": {"name": title}}
    yield {"ph": "M", "name": "process_sort_index", "args": {"sort_index": rank}}
    for track, name in tracks.items():
        yield {"ph": "M", "name": "thread_name", "tid": track, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "tid": track, "args": {"sort_index": track}}


def _run_events(run: Run) -> Iterator[Event]:
    about = {"number": run.number, "program": run.program}
    yield _event(f"step {run.number}", "step", _STEP, run.began_ns, run.ended_ns, about)
    for place, began_ns, ended_ns in run.spans:
        label = run.timed.labels[place]
        about = {"op": label.op, "type": label.kind, "source": label.source}
        yield _event(label.name, label.role, _COMPUTE, began_ns, ended_ns, about)


def _collective_events(record: TracedCollective, track: int) -> Iterator[Event]:
    name = f"{record.collective} {record.what}".rstrip()
    key = {"group": record.group, "number": record.number}
    about = key | {
        "communicator": record.group.partition("/")[0],
        "bytes": record.nbytes,
        "queue_us": (record.began_ns - record.started_ns) / 1000,
        "wait_us": sum(end - begin for begin, end in record.waited) / 1000,
    }
    yield _event(name, "collective", track, record.began_ns, record.ended_ns, about)
    for begin_ns, end_ns in record.waited:
        yield _event(f"wait for {name}", "wait", _BLOCKED, begin_ns, end_ns, key)


def _event(name: str, kind: str, track: int, began_ns: int, ended_ns: int, about: dict[str, Any]) -> Event:
    times = {"ts": began_ns / 1000, "dur": (ended_ns - began_ns) / 1000}
    return {"ph": "X", "name": name, "cat": kind, "tid": track, **times, "args": about}


def _rank_and_size() -> tuple[int, int]:
    return (world().rank, world().size) if is_connected() else env.rank_and_size()


def _anchor() -> tuple[int, int]:
    """The same moment by the wall clock and by perf_counter."""
    return time.time_ns(), time.perf_counter_ns()


def _clock() -> str:
    """Equal for processes with the same perf_counter: CLOCK_MONOTONIC of one kernel and time namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {_namespace('time')}"


def _namespace(kind: str) -> str:
    """net:[4026531833]; "" where the kernel has no such namespaces."""
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return ""

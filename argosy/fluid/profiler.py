"""fluid.profiler: the time of each op, as a table and as a trace; recorded by Argosy's timeline.

with profiler.profiler("CPU", sorted_key="total", profile_path="profile"):
    for batch in batches:
        exe.run(…)

The table is printed at the end. The trace, in the format of chrome://tracing and Perfetto, is written to profile_path.
Programs that do not train are recorded too.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from argosy.engine.collective import trace
from argosy.engine.errors import ConfigError
from argosy.engine.log import logger
from argosy.engine.runtime import timeline
from argosy.engine.runtime.atomic_files import bytes_writer, replace_files
from argosy.engine.runtime.compile import Compiled
from argosy.framework.checks import one_of
from argosy.framework.missing import missing, raises

__all__ = ["cuda_profiler", "profiler", "reset_profiler", "start_profiler", "stop_profiler"]


class _Profile(timeline.Timeline):
    """A timeline of all runs, whose file is written by stop_profiler."""

    def __init__(self) -> None:
        super().__init__(Path(), (1, 1))

    def _remove_old_trace(self) -> None:
        """Nothing: the path of the file is not known yet."""

    def begin(self, compiled: Compiled, program: str) -> timeline.Run:
        """Record every run."""
        self.num_steps += 1
        timed = compiled.timed
        timed.spans.clear()  # of a run that failed
        trace.recording = self.collectives
        return timeline.Run(self.num_steps, program, timed, time.perf_counter_ns())

    def end(self, run: timeline.Run) -> None:
        """Finish a run."""
        run.ended_ns = time.perf_counter_ns()
        run.spans = list(run.timed.spans)
        self.runs.append(run)


@dataclass(frozen=True)
class OpTimes:
    """The calls of an op, in milliseconds."""

    op: str
    times: tuple[float, ...]

    @property
    def total(self) -> float:
        return sum(self.times)


_ORDERS: dict[str, Callable[[OpTimes], float]] = {
    "calls": lambda op: len(op.times),
    "total": lambda op: op.total,
    "max": lambda op: max(op.times),
    "min": lambda op: min(op.times),
    "ave": lambda op: op.total / len(op.times),
}
_current: _Profile | None = None


def start_profiler(state: str, tracer_option: str = "Default") -> None:
    """Record all runs from here on. state: 'CPU' or 'All'; tracer_option: 'Default', 'OpDetail' or 'AllOpDetail'."""
    global _current  # noqa: PLW0603  (Paddle's profiler is one per process)
    if state not in ("CPU", "All"):
        raise ConfigError(f"start_profiler: state={state!r}; use 'CPU' or 'All': programs run on the CPU")
    one_of("start_profiler: tracer_option", tracer_option, "default", "opdetail", "allopdetail")
    if _current is not None:
        raise ConfigError("start_profiler: the profiler runs already; call stop_profiler first")
    profile = _Profile()
    timeline.attach(profile)
    _current = profile


def stop_profiler(sorted_key: str | None = None, profile_path: str = "/tmp/profile") -> None:
    """Print a table of the ops, sorted by 'calls', 'total', 'max', 'min' or 'ave', and write the trace to profile_path.

    None keeps the order of the first calls.
    """
    global _current
    if _current is None:
        raise ConfigError("stop_profiler: the profiler does not run; call start_profiler first")
    if sorted_key not in (None, "default", *_ORDERS):
        raise ConfigError(f"stop_profiler: sorted_key={sorted_key!r}; use {', '.join(_ORDERS)} or None")
    profile, _current = _current, None
    timeline.detach(profile)
    for line in report(profile.runs, None if sorted_key == "default" else sorted_key):
        print(line)
    text = json.dumps(profile.trace(), separators=(",", ":"), allow_nan=False)
    try:
        replace_files({Path(profile_path).absolute(): bytes_writer(text.encode())})
    except OSError as e:
        raise ConfigError(f"stop_profiler: {profile_path} cannot be written: {e}; give another path") from e
    logger.info(
        "profiler: %d runs in %s; open it in https://ui.perfetto.dev", len(profile.runs), profile_path
    )


def reset_profiler() -> None:
    """Forget the runs so far."""
    if _current is not None:
        _current.runs.clear()
        _current.collectives.clear()


@contextmanager
def profiler(
    state: str,
    sorted_key: str | None = None,
    profile_path: str = "/tmp/profile",
    tracer_option: str = "Default",
) -> Iterator[None]:
    """start_profiler and stop_profiler around a block."""
    start_profiler(state, tracer_option)
    try:
        yield
    finally:
        stop_profiler(sorted_key, profile_path)


def report(runs: list[timeline.Run], sorted_key: str | None) -> Iterator[str]:
    """The lines of the table."""
    times: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for place, began_ns, ended_ns in run.spans:
            times[run.timed.labels[place].op].append((ended_ns - began_ns) / 1e6)
    ops = [OpTimes(op, tuple(calls)) for op, calls in times.items()]
    if sorted_key is not None:
        ops.sort(key=_ORDERS[sorted_key], reverse=True)
    total = sum(op.total for op in ops)
    yield "\n------------------------->     Profiling Report     <-------------------------\n"
    yield "Place: CPU"
    yield "Time unit: ms"
    order = f"by {sorted_key} in descending order" if sorted_key else "in the order of the first calls"
    yield f"Sorted {order}, {len(runs)} runs\n"
    yield f"{'Event':<44}{'Calls':>8}{'Total':>12}{'Min.':>12}{'Max.':>12}{'Ave.':>12}{'Ratio.':>10}"
    for op in ops:
        numbers = (op.total, min(op.times), max(op.times), op.total / len(op.times))
        columns = "".join(f"{number:>12.6g}" for number in numbers)
        ratio = op.total / total if total else 0.0
        yield f"{op.op:<44}{len(op.times):>8}{columns}{ratio:>10.4f}"


cuda_profiler = raises("argosy.fluid.profiler.cuda_profiler", "it is NVIDIA's profiler; use profiler('CPU')")
__getattr__ = missing(__name__, globals())

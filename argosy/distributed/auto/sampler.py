"""StepSampler: the times of the nodes of some steps of this rank, without their waits, and of the executor."""

# SPDX-License-Identifier: Apache-2.0
import time
from pathlib import Path
from statistics import median

from torch import fx

from argosy.engine.collective import trace
from argosy.engine.runtime import timeline
from argosy.engine.runtime.compile import Compiled
from argosy.engine.runtime.step_metrics import without_waits

MIN_SAMPLES = 3


class StepSampler(timeline.Timeline):
    """While it is attached, every training step is recorded; it writes no file."""

    def __init__(self) -> None:
        super().__init__(Path(), (1, 1))
        self._compiled: Compiled | None = None
        self._node_ns: list[list[int]] = []
        self._outside_ns: list[int] = []
        self._places: list[int] = []

    def _remove_old_trace(self) -> None:
        """Nothing: there is no file."""

    def begin(self, compiled: Compiled, program: str) -> timeline.Run | None:
        if not compiled.trains or not compiled.schedule:
            return None
        if compiled is not self._compiled:
            self._compiled, self._node_ns, self._outside_ns = compiled, [], []
        timed = compiled.timed
        timed.spans.clear()
        self.collectives = trace.recording = []
        return timeline.Run(0, program, timed, time.perf_counter_ns())

    def end(self, run: timeline.Run) -> None:
        spans, took_ns = list(run.timed.spans), time.perf_counter_ns() - run.began_ns
        trace.recording = None
        waits = sorted(interval for one in self.collectives for interval in one.waited)
        self._places = [place for place, _, _ in spans]
        self._node_ns.append(without_waits(spans, waits)[0])
        self._outside_ns.append(max(0, took_ns - sum(end - begin for _, begin, end in spans)))

    def nodes(self) -> list[tuple[fx.Node, float]]:
        """The nodes with their median milliseconds; empty before enough steps were recorded."""
        if self._compiled is None or len(self._node_ns) < MIN_SAMPLES:
            return []
        medians = [median(column) / 1e6 for column in zip(*self._node_ns, strict=True)]
        nodes = self._compiled.step.nodes
        return [(nodes[place], ms) for place, ms in zip(self._places, medians, strict=True)]

    def outside_ms(self) -> float:
        """The executor's milliseconds before, between and after the nodes, in the median step."""
        return median(self._outside_ns) / 1e6 if self._outside_ns else 0.0

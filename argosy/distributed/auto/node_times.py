"""NodeTimes: how long each node of a compiled step takes, measured on this machine.

    measure(run)    runs of a step, alternating: one that is timed as a whole, one with a clock around every node
                    ──▶ by node: median and spread; the step's time outside of its nodes; copies by size

A node's times are scaled so that they add up to the step without clocks. They are of one batch size; `fitted` has those
of others, by a line through the times of each node at several sizes. Data only: a file is JSON with a version.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from argosy.engine.errors import ConfigError
from argosy.engine.planner.data_files import read_json, write_text
from argosy.engine.runtime import timeline
from argosy.engine.runtime.compile import Compiled, Label

FORMAT, VERSION = "argosy.node_times", 1
WARM_UP = 3
_COPY_BYTES = tuple(1 << shift for shift in range(10, 25, 2))
_COPY_REPEATS = 15


@dataclass(frozen=True)
class NodeTime:
    """The time of one node."""

    name: str
    op: str
    kind: str
    """float32[N, 10]"""
    source: str
    role: str
    ms: float
    spread_ms: float
    """The standard deviation from step to step, without outliers."""


@dataclass(frozen=True)
class NodeTimes:
    """The times of a step's nodes, and what else it consists of."""

    nodes: tuple[NodeTime, ...]
    step_ms: float
    """A whole step, without clocks around its nodes."""
    before_ms: float
    """The executor's time before the first node."""
    after_ms: float
    gap_ms: float
    """Between two nodes."""
    examples: int = 0
    """The batch."""
    copies: tuple[tuple[int, float], ...] = ()
    """(bytes, milliseconds) of copies in memory."""
    processes: int = 1
    """How many processes ran this step at the same time, each with its own cores."""
    update_bytes: int = 0
    """The bytes of the parameters that the step updates."""
    by_label: dict[tuple[str, str], NodeTime] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self.by_label.update({(node.name, node.op): node for node in self.nodes})

    def copy_ms(self, nbytes: float) -> float:
        """The time of a copy of so many bytes, between the measured ones."""
        sizes = np.log([size for size, _ in self.copies])
        rates = [ms / size for size, ms in self.copies]
        return float(nbytes * np.interp(np.log(max(nbytes, 1.0)), sizes, rates)) if self.copies else 0.0

    def write(self, path: Path) -> None:
        """Write a file atomically."""
        content = {k: v for k, v in asdict(self).items() if k != "by_label"}
        write_text(path, json.dumps({"format": FORMAT, "version": VERSION, **content}, indent=1))


def read_node_times(path: Path) -> NodeTimes:
    """Read a file that `NodeTimes.write` wrote."""
    content = read_json(path, "node times")
    if not isinstance(content, dict) or (content.get("format"), content.get("version")) != (FORMAT, VERSION):
        raise ConfigError(f"{path} has no format {FORMAT!r} of version {VERSION}; measure again")
    values: dict[str, Any] = {k: v for k, v in content.items() if k not in ("format", "version")}
    values["nodes"] = tuple(NodeTime(**node) for node in values["nodes"])
    values["copies"] = tuple((int(size), float(ms)) for size, ms in values["copies"])
    return NodeTimes(**values)


class _Collector(timeline.Timeline):
    """Records every run, and writes no file."""

    def __init__(self) -> None:
        super().__init__(Path(), (1, 1))
        self.compiled: Compiled | None = None

    def _remove_old_trace(self) -> None:
        """Nothing: there is no file."""

    def begin(self, compiled: Compiled, program: str) -> timeline.Run | None:
        if not compiled.trains:
            return None
        self.compiled = compiled
        compiled.timed.spans.clear()
        return timeline.Run(0, program, compiled.timed, time.perf_counter_ns())

    def end(self, run: timeline.Run) -> None:
        run.ended_ns, run.spans = time.perf_counter_ns(), list(run.timed.spans)
        self.runs.append(run)


def measure(
    run: Callable[[], object],
    seconds: float = 5.0,
    least: int = 6,
    examples: int = 0,
    processes: int = 1,
) -> tuple[NodeTimes, Compiled]:
    """Run the training step for so many seconds; its node times, and the compiled step.

    `run` runs one step of a program without collectives, with an executor. The steps change parameters.
    """
    for _ in range(WARM_UP):
        run()
    collector = _Collector()
    whole: list[float] = []
    ends = time.perf_counter() + seconds
    while len(whole) < least or time.perf_counter() < ends:
        began = time.perf_counter_ns()
        run()
        whole.append((time.perf_counter_ns() - began) / 1e6)
        timeline.attach(collector)
        try:
            run()
        finally:
            timeline.detach(collector)
    if collector.compiled is None:
        raise ConfigError("the run trains nothing, so there is no step to measure; give the main program")
    measured = _of_runs(collector.runs, median(whole), examples)
    measured = replace(measured, copies=_copies(), processes=processes)
    return measured, collector.compiled


def _of_runs(runs: Sequence[timeline.Run], step_ms: float, examples: int) -> NodeTimes:
    spans = np.array([run.spans for run in runs], dtype=np.float64)  # (run, node, (place, begin, end))
    took = (spans[:, :, 2] - spans[:, :, 1]) / 1e6
    middle = np.median(took, axis=0)
    spread = 1.4826 * np.median(np.abs(took - middle), axis=0)
    before = float(np.median(spans[:, 0, 1] - [run.began_ns for run in runs])) / 1e6
    after = float(np.median([run.ended_ns for run in runs] - spans[:, -1, 2])) / 1e6
    gap = float(np.median(spans[:, 1:, 1] - spans[:, :-1, 2])) / 1e6
    # Clocks around the nodes, and medians of nodes one by one, do not add up to the step.
    scale = step_ms / float(middle.sum() + before + after + gap * len(middle))
    labels = runs[0].timed.labels
    nodes = tuple(
        _node(labels[int(place)], float(ms) * scale, float(sd) * scale)
        for place, ms, sd in zip(spans[0, :, 0], middle, spread, strict=True)
    )
    return NodeTimes(nodes, step_ms, before * scale, after * scale, gap * scale, examples)


def _node(label: Label, ms: float, spread_ms: float) -> NodeTime:
    return NodeTime(label.name, label.op, label.kind, label.source, label.role, ms, spread_ms)


def _copies() -> tuple[tuple[int, float], ...]:
    """Milliseconds of copies of several sizes, each from and to another place, as gradients are."""
    result = []
    for nbytes in _COPY_BYTES:
        numel, repeats = nbytes // 4, _COPY_REPEATS if nbytes > 1 << 20 else 4 * _COPY_REPEATS
        places = max(2, min(16, (1 << 25) // nbytes))
        source, target = torch.zeros(places, numel), torch.zeros(places, numel)
        times = []
        for turn in range(repeats):
            began = time.perf_counter_ns()
            target[turn % places].copy_(source[turn % places])
            times.append((time.perf_counter_ns() - began) / 1e6)
        result.append((nbytes, median(times)))
    return tuple(result)


def scaled(times: NodeTimes, factor: float) -> NodeTimes:
    """All times multiplied: of a machine, or of cores that are shared, that takes so many times as long."""
    nodes = tuple(replace(n, ms=n.ms * factor, spread_ms=n.spread_ms * factor) for n in times.nodes)
    rest = {key: getattr(times, key) * factor for key in ("step_ms", "before_ms", "after_ms", "gap_ms")}
    copies = tuple((size, ms * factor) for size, ms in times.copies)
    return replace(times, nodes=nodes, copies=copies, **rest)


def fitted(measured: Sequence[NodeTimes], examples: int) -> NodeTimes:
    """The times at another batch size, by a line through those of each node at two or more sizes; never below zero."""
    if len({one.examples for one in measured}) < 2:
        raise ConfigError(
            f"times of {len(measured)} batch size; measure two or more to have those of {examples} examples"
        )
    sizes = np.array([one.examples for one in measured], dtype=np.float64)
    nearest = min(measured, key=lambda one: abs(one.examples - examples))

    def at(values: Sequence[float]) -> float:
        slope, begin = np.polyfit(sizes, values, 1)
        return max(0.0, float(begin + slope * examples))

    def of(node: NodeTime) -> NodeTime:
        same = [one.by_label.get((node.name, node.op)) for one in measured]
        if any(other is None for other in same):  # kernels of other sizes: scaled with the batch
            return replace(node, ms=node.ms * examples / nearest.examples)
        ms = at([other.ms for other in same if other is not None])
        return replace(node, ms=ms, spread_ms=node.spread_ms * (ms / node.ms if node.ms else 1.0))

    return replace(
        nearest,
        nodes=tuple(map(of, nearest.nodes)),
        examples=examples,
        step_ms=at([one.step_ms for one in measured]),
        before_ms=at([one.before_ms for one in measured]),
        after_ms=at([one.after_ms for one in measured]),
    )

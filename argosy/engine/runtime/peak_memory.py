"""The peak memory of a step: how much, at which node, and for which purpose.

    report = exe.memory_report(main)        of the last run
    print(report)

Computed from the liveness of the step's nodes and the sizes of the feeds. Workspaces of kernels and memory that the C
library retains are not included; `measured_bytes`, the high-water mark of the process, includes both.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import sympy
import torch
from torch import fx

from argosy.engine.ir.liveness import Allocation, allocations, memories, profile
from argosy.engine.ir.symbols import Symbols

if TYPE_CHECKING:
    from argosy.engine.runtime.compile import Label

_LARGEST = 10
_SHOWN = {
    "parameters": "parameters",
    "state": "optimizer state, statistics, constants",
    "feeds": "feeds",
    "gradients": "gradients of parameters",
    "activations": "kept for backward",
    "temporaries": "everything else",
}


@dataclass(frozen=True)
class LiveValue:
    """A value that is live at the peak."""

    name: str
    kind: str
    """float32[N, 10]"""
    what: str
    """The field of MemoryBreakdown that it counts for."""
    nbytes: int
    source: str


@dataclass(frozen=True)
class MemoryBreakdown:
    """The bytes at the peak, by purpose."""

    parameters: int = 0
    state: int = 0
    """Optimizer state, statistics and constants."""
    feeds: int = 0
    gradients: int = 0
    """Of parameters, with the flat buffers of their buckets."""
    activations: int = 0
    """Allocated in forward and read in backward."""
    temporaries: int = 0

    def total(self) -> int:
        return sum(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True)
class MemoryReport:
    """The peak of a step; `print` shows it as a table."""

    program: str
    peak_bytes: int
    breakdown: MemoryBreakdown
    node: str
    """The node that runs when the peak is reached."""
    source: str
    """The user's source line of that node."""
    largest: tuple[LiveValue, ...]
    """The largest values that are live there and allocated by the step, largest first."""
    measured_bytes: int | None
    """The high-water mark of the process (VmHWM), with Python, torch and data; None if unknown."""

    def __str__(self) -> str:
        rows = [(_SHOWN[f.name], getattr(self.breakdown, f.name)) for f in fields(self.breakdown)]
        lines = [f"peak memory of {self.program}: {_mib(self.peak_bytes)} at {self._where()}"]
        lines += [f"  {_mib(nbytes):>12}  {what}" for what, nbytes in rows if nbytes]
        lines += ["largest values there:"] if self.largest else []
        lines += [
            f"  {_mib(v.nbytes):>12}  {v.name}  {v.kind}  {_SHOWN[v.what]}  {v.source}".rstrip()
            for v in self.largest
        ]
        if self.measured_bytes is not None:
            lines.append(f"high-water mark of the whole process: {_mib(self.measured_bytes)}")
        return "\n".join(lines)

    def line(self) -> str:
        """The report in one line, for the log."""
        s = self.breakdown
        return (
            f"peak memory of {self.program}: {_mib(self.peak_bytes)} at {self._where()}: "
            f"{_mib(s.parameters + s.state)} parameters and state, {_mib(s.gradients)} gradients, "
            f"{_mib(s.activations)} kept for backward, {_mib(s.temporaries + s.feeds)} feeds and temporaries"
        )

    def _where(self) -> str:
        return f"{self.node} ({self.source})" if self.source else self.node


@dataclass(frozen=True)
class MemoryProfile:
    """The allocations of a compiled step with symbolic sizes; `report` substitutes the sizes of a run."""

    nodes: Sequence[fx.Node]
    outputs: Sequence[fx.Node]
    persistent: Mapping[int, tuple[str, int | torch.SymInt]]
    """By storage, memory that exists before the step: the field of MemoryBreakdown it counts for, and its size."""
    gradients: frozenset[int]
    label: Callable[[fx.Node], Label]
    symbols: Symbols

    def report(self, program: str, sizes: Mapping[sympy.Symbol, int]) -> MemoryReport:
        """The peak for the sizes of the feeds."""
        size_of = self.symbols.size_of(sizes)
        allocated = allocations(self.nodes, self.outputs, size_of)
        live_bytes = profile(allocated, len(self.nodes))
        place = int(live_bytes.argmax()) if len(live_bytes) else 0
        live = [a for a in allocated if a.first <= place <= a.last]
        counts = {field.name: 0 for field in fields(MemoryBreakdown)}
        for what, nbytes in self.persistent.values():
            counts[what] += size_of(nbytes)
        for allocation in live:
            counts[self._what(allocation)] += allocation.nbytes
        breakdown = MemoryBreakdown(**counts)
        at = self.label(self.nodes[place]) if self.nodes else None
        return MemoryReport(
            program=program,
            peak_bytes=breakdown.total(),
            breakdown=breakdown,
            node=at.name if at else "no node",
            source=at.source if at else "",
            largest=tuple(self._value(a) for a in sorted(live, key=lambda a: -a.nbytes)[:_LARGEST]),
            measured_bytes=high_water_mark(),
        )

    def _what(self, allocation: Allocation) -> str:
        if allocation.memory in self.gradients:
            return "gradients"
        last = self.nodes[allocation.last] if allocation.last < len(self.nodes) else None
        is_forward = allocation.node.meta["role"] == "forward"
        is_activation = is_forward and last is not None and last.meta["role"] != "forward"
        return "activations" if is_activation else "temporaries"

    def _value(self, allocation: Allocation) -> LiveValue:
        label = self.label(allocation.holder)
        return LiveValue(label.name, label.kind, self._what(allocation), allocation.nbytes, label.source)


def memory_of(what: str, nodes: Sequence[fx.Node]) -> dict[int, tuple[str, int | torch.SymInt]]:
    """For MemoryProfile.persistent: the memory of inputs of the step."""
    return {memory: (what, nbytes) for node in nodes for memory, nbytes in memories(node)}


def high_water_mark() -> int | None:
    """The peak resident memory of this process, in bytes; None where there is no /proc."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    peaks_kib = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(peaks_kib[0]) * 1024 if peaks_kib else None


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.0f} MiB" if nbytes >= 10 * 2**20 else f"{nbytes / 2**20:,.2f} MiB"

"""How much memory a step takes at its peak, where that is, and for what.

    report = exe.memory_report(main)        of the last run
    print(report)

Computed from the step's list of nodes and the sizes that were fed. What kernels take for themselves while they run,
and what the C library keeps, is not in it: `measured_bytes`, the process's high-water mark, has that too.
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

from argosy.engine.ir.liveness import Block, SizeOf, blocks, memories, profile
from argosy.engine.ir.symbols import Symbols, hint

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
class Value:
    """A value that is alive at the peak."""

    name: str
    kind: str
    """float32[N, 10]"""
    what: str
    """A field of Shares."""
    nbytes: int
    source: str


@dataclass(frozen=True)
class Shares:
    """What the memory at the peak is for, in bytes."""

    parameters: int = 0
    state: int = 0
    """Optimizer state, statistics and constants."""
    feeds: int = 0
    gradients: int = 0
    """Of parameters, with the buffers that they travel in."""
    activations: int = 0
    """What forward made and backward reads."""
    temporaries: int = 0

    def total(self) -> int:
        return sum(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True)
class MemoryReport:
    """The peak of a step; `print` shows it as a table."""

    program: str
    peak_bytes: int
    shares: Shares
    node: str
    """The node that runs when the peak is reached, and the user's line that made it."""
    source: str
    largest: tuple[Value, ...]
    """The largest values that the step itself has alive there, largest first."""
    measured_bytes: int | None
    """The most that the process ever had in memory (VmHWM), with Python, torch and data; None if it is not known."""

    def __str__(self) -> str:
        rows = [(_SHOWN[f.name], getattr(self.shares, f.name)) for f in fields(self.shares)]
        lines = [f"peak memory of {self.program}: {_mib(self.peak_bytes)} at {self._where()}"]
        lines += [f"  {_mib(nbytes):>12}  {what}" for what, nbytes in rows if nbytes]
        lines += ["largest values there:"] if self.largest else []
        lines += [
            f"  {_mib(v.nbytes):>12}  {v.name}  {v.kind}  {_SHOWN[v.what]}  {v.source}".rstrip()
            for v in self.largest
        ]
        if self.measured_bytes is not None:
            lines.append(
                f"the process has had {_mib(self.measured_bytes)} at the most, with all that is in it"
            )
        return "\n".join(lines)

    def line(self) -> str:
        """The report in one line, for the log."""
        s = self.shares
        return (
            f"peak memory of {self.program}: {_mib(self.peak_bytes)} at {self._where()}: "
            f"{_mib(s.parameters + s.state)} parameters and state, {_mib(s.gradients)} gradients, "
            f"{_mib(s.activations)} kept for backward, {_mib(s.temporaries + s.feeds)} feeds and temporaries"
        )

    def _where(self) -> str:
        return f"{self.node} ({self.source})" if self.source else self.node


@dataclass(frozen=True)
class Memory:
    """What a compiled step tells about its memory; `report` puts sizes in."""

    nodes: Sequence[fx.Node]
    outputs: Sequence[fx.Node]
    lasting: Mapping[int, tuple[str, int | torch.SymInt]]
    """Memory that is there before the step: the field of Shares it belongs to, and its size."""
    gradients: frozenset[int]
    label: Callable[[fx.Node], Label]
    symbols: Symbols

    def report(self, program: str, sizes: Mapping[sympy.Symbol, int]) -> MemoryReport:
        """The peak for the sizes that were fed."""
        size_of = _sizes(self.symbols, sizes)
        found = blocks(self.nodes, self.outputs, size_of)
        alive = profile(found, len(self.nodes))
        place = int(alive.argmax()) if len(alive) else 0
        there = [block for block in found if block.first <= place <= block.last]
        counts = {field.name: 0 for field in fields(Shares)}
        for what, nbytes in self.lasting.values():
            counts[what] += size_of(nbytes)
        for block in there:
            counts[self._what(block)] += block.nbytes
        shares = Shares(**counts)
        at = self.label(self.nodes[place]) if self.nodes else None
        return MemoryReport(
            program=program,
            peak_bytes=shares.total(),
            shares=shares,
            node=at.name if at else "no node",
            source=at.source if at else "",
            largest=tuple(self._value(b) for b in sorted(there, key=lambda b: -b.nbytes)[:_LARGEST]),
            measured_bytes=high_water_mark(),
        )

    def _what(self, block: Block) -> str:
        if block.memory in self.gradients:
            return "gradients"
        ends = self.nodes[block.last] if block.last < len(self.nodes) else None
        is_kept = block.node.meta["role"] == "forward" and ends is not None and ends.meta["role"] != "forward"
        return "activations" if is_kept else "temporaries"

    def _value(self, block: Block) -> Value:
        label = self.label(block.holder)
        return Value(label.name, label.kind, self._what(block), block.nbytes, label.source)


def memory_of(what: str, nodes: Sequence[fx.Node]) -> dict[int, tuple[str, int | torch.SymInt]]:
    """For Memory.lasting: the memory of inputs of the step."""
    return {memory: (what, nbytes) for node in nodes for memory, nbytes in memories(node)}


def high_water_mark() -> int | None:
    """The most memory that this process ever had, in bytes; None where there is no /proc."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(found[0]) * 1024 if found else None


def _sizes(symbols: Symbols, sizes: Mapping[sympy.Symbol, int]) -> SizeOf:
    """Puts what was fed in for symbols; a size that nothing was fed for keeps its hint."""
    # A feed's own symbol, and the one that the program found it to be equal to.
    values = {symbols.env.replace(symbol): sympy.Integer(size) for symbol, size in sizes.items()}
    values |= {symbol: sympy.Integer(size) for symbol, size in sizes.items()}
    known: dict[sympy.Expr, int] = {}

    def size_of(size: int | torch.SymInt) -> int:
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if expression not in known:
            found = expression.xreplace(values)
            known[expression] = int(found) if found.is_number else hint(size)
        return known[expression]

    return size_of


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.0f} MiB" if nbytes >= 10 * 2**20 else f"{nbytes / 2**20:,.2f} MiB"

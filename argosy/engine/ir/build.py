"""Build: the compile options of a program."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

from torch import fx


class RewriteReport(Protocol):
    """The part of a pass's report that its runner logs."""

    @property
    def changed(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def notices(self) -> tuple[str, ...]: ...


class Fusion(Protocol):
    """The part of `passes.base.Pass` that compiling and printing a program need; a frozen value."""

    @property
    def name(self) -> str: ...
    def run(self, graph: fx.Graph) -> RewriteReport: ...
    def with_live_out(self, live_out: frozenset[fx.Node]) -> Self: ...


@dataclass(frozen=True)
class Build:
    """How a program is compiled."""

    without_passes: frozenset[str] = frozenset()
    """Names of the default passes that are switched off."""
    fusions: tuple[Fusion, ...] = ()
    """Fusion passes; they run on a copy, when the program is compiled or printed."""
    compiler: str = ""
    """The compiler of the regions between collectives: "inductor", or "" for none."""
    memory_optimize: bool | None = None
    """True: rematerialize all activations that can be; False: none; None: the default."""

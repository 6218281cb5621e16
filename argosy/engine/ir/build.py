"""Build: the compile options of a program."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

from torch import fx

from argosy.engine.ir.liveness import SizeOf


class BuildPass(Protocol):
    """The part of `passes.base.Pass` that printing a program needs; a frozen value."""

    def with_sizes(self, size_of: SizeOf) -> Self:
        """The same pass, which plans for these sizes where the program's vary."""
        ...

    def run(self, graph: fx.Graph) -> object:
        """Rewrite the graph in place."""
        ...


@dataclass(frozen=True)
class Build:
    """How a program is compiled."""

    without_passes: frozenset[str] = frozenset()
    """Names of the default passes that are switched off."""
    fusions: tuple[BuildPass, ...] = ()
    """The requested fusions; they run on a copy, when the program is compiled or printed. The default
    fusions run when it is compiled."""
    autocast: BuildPass | None = None
    """Casts to 16 bits where mixed precision asks for it; runs before the fusions."""
    recompute: BuildPass | None = None
    """Recomputes activations in backward; runs after the fusions."""
    compiler: str = ""
    """The compiler of the regions between collectives: "inductor", or "" for none."""
    memory_optimize: bool | None = None
    """True: rematerialize all activations that can be; False: none; None: the default."""

    @property
    def passes(self) -> tuple[BuildPass, ...]:
        """The passes that run on a copy of the program before the default ones."""
        ordered = (self.autocast, *self.fusions, self.recompute)
        return tuple(rewrite for rewrite in ordered if rewrite is not None)

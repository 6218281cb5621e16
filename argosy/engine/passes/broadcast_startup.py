"""Let all ranks begin with the values of rank 0.

    before    w = mul(rand(…), …)
    after     w = broadcast(mul(rand(…), …), 0)

For a startup program: parameters and statistics are drawn on every rank, and rank 0's count.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import ClassVar

from torch import fx

from argosy.engine.ir.infer import infer
from argosy.engine.ops.broadcast import broadcast
from argosy.engine.passes.base import Pass, Report


@dataclass(frozen=True)
class BroadcastStartup(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "broadcast_startup"

    values: tuple[tuple[str, fx.Node], ...]
    """(name, node) of each variable's first value."""
    group: str = "dp"

    def run(self, graph: fx.Graph) -> Report:
        todo = [(name, node) for name, node in self.values if node.target is not broadcast]
        for name, node in todo:  # at the end, so that a rank that draws longer delays the others once
            made = graph.create_node("call_function", broadcast, (node, 0, self.group, name), {}, "broadcast")
            made.meta = {"role": "communicate", "source": node.meta.get("source"), "stands_for": node}
            made.meta["val"] = infer(made)
        return Report(len(todo), f"{len(todo)} variables begin with rank 0's values")

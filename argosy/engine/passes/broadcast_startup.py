"""Broadcast the initial values of rank 0 to all ranks.

    before    w = mul(rand(…), …)
    after     w = broadcast(mul(rand(…), …), 0)

For a startup program: every rank draws parameters and statistics, and the values of rank 0 replace the others'.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import ClassVar

from torch import fx

from argosy.engine.ir.infer import infer
from argosy.engine.ops.collectives import broadcast
from argosy.engine.passes.base import Pass, Report


@dataclass(frozen=True)
class BroadcastStartup(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "broadcast_startup"

    values: tuple[tuple[str, fx.Node], ...]
    """(name, node) of each variable's initial value."""
    group: str = "dp"

    def run(self, graph: fx.Graph) -> Report:
        todo = [(name, node) for name, node in self.values if node.target is not broadcast]
        for name, node in todo:  # at the end of the program, so that a slow rank delays the others only once
            sent = graph.create_node("call_function", broadcast, (node, 0, self.group, name), {}, "broadcast")
            sent.meta = {"role": "communicate", "source": node.meta.get("source"), "replaces": node}
            sent.meta["val"] = infer(sent)
        return Report(len(todo), f"{len(todo)} variables are initialized with rank 0's values")

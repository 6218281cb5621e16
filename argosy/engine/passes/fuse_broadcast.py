"""Fuse consecutive broadcasts of parameters into one node.

    before    broadcast(w1, 0, 'dp', 'w1');  broadcast(w2, 1, 'dp', 'w2')
    after     broadcast_fused([w1, w2], [0, 1], 'dp', 'w1 … w2')              one message per source rank

Paddle's name for it is `fuse_broadcast_ops`.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from torch import fx

from argosy.engine.ir.periods import inherited
from argosy.engine.ops.collectives import broadcast, broadcast_fused
from argosy.engine.passes.base import Pass, Report


@dataclass(frozen=True)
class FuseBroadcast(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "fuse_broadcast"

    def run(self, graph: fx.Graph) -> Report:
        runs = [list(run) for group, run in groupby(list(graph.nodes), _group) if group is not None]
        many = [run for run in runs if len(run) > 1]
        for run in many:
            _fuse(graph, run)
        return Report(len(many), f"{sum(map(len, runs))} broadcasts in {len(runs)} collectives")


def _group(node: fx.Node) -> object:
    """The process group and period of a broadcast of a variable of the scope; None for any other node."""
    if (
        node.target is not broadcast
        or node.meta.get("finalized")
        or node.all_input_nodes[0].op != "placeholder"
    ):
        return None
    return node.args[2], node.meta.get("period")


def _fuse(graph: fx.Graph, run: list[fx.Node]) -> None:
    tensors, sources, groups, names = zip(*(node.args for node in run), strict=True)
    args = (list(tensors), list(sources), groups[0], f"{names[0]} … {names[-1]}")
    with graph.inserting_before(run[0]):
        fused = graph.create_node("call_function", broadcast_fused, args, {}, "broadcast_fused")
    fused.meta = {
        "role": "communicate",
        "source": run[0].meta.get("source"),
        "val": None,
        **inherited(run[0]),
    }
    for tensor, node in zip(tensors, run, strict=True):
        tensor.meta["replaces"] = (
            node  # bind the variable to its placeholder again, no longer to the broadcast
        )
        graph.erase_node(node)

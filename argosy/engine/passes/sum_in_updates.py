"""Let sharded updates sum the gradients of a host's ranks, in the same pass over memory.

    before    w = wait(reduce_scatter(b, 0, [0, 96, 128], 'dp', 2))             sums this rank's shard
              momentum(w1, shard_rows(bucket_view(w, p1, 0), 0, 8), v1, …)
    after     w = wait(reduce_scatter(b, 0, [0, 96, 128], 'dp', 2, sums=False)) all ranks have written their gradients
              momentum(w1, shard_gradient(b, w, p1, 0, 0, 8, 'dp', 2), v1, …)   sums and updates

Only buckets that nothing but updates with a kernel for sums reads: no clipping, no casts. The collective stays the
same, so a rank may sum in its updates and another one, which has other rows and other nodes, before them. Where the
buffers are not in shared memory, or the sums have to be all-reduced between replicas, reduce_scatter sums as before.
Runs last on the copy that is compiled. The results are the same, bit for bit.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from torch import fx

from argosy.engine.ir.infer import infer
from argosy.engine.ops.collectives import wait
from argosy.engine.ops.gradient_buckets import bucket_view
from argosy.engine.ops.sharding import all_gather_shards, reduce_scatter, shard_gradient, shard_rows
from argosy.engine.ops.updates import FUSED
from argosy.engine.passes.base import Pass, Report

_UPDATES = frozenset((*FUSED, *FUSED.values()))


@dataclass(frozen=True)
class SumInUpdates(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "sum_in_updates"

    def run(self, graph: fx.Graph) -> Report:
        starts = graph.find_nodes(op="call_function", target=reduce_scatter)
        readers = {start: _readers(start) for start in starts}
        obstacles = [reader for nodes in readers.values() for reader in nodes if isinstance(reader, str)]
        changed = 0
        for start, nodes in readers.items():
            slices = [node for node in nodes if isinstance(node, fx.Node)]
            if len(slices) == len(nodes):
                _rewrite(graph, start, slices)
                changed += 1
        text = f"{changed} of {len(starts)} buckets are summed in their updates"
        return Report(changed, text + (f"; {obstacles[0]}" if obstacles else ""))


def _readers(start: fx.Node) -> list[fx.Node | str]:
    """The rows of gradients that updates read; a text for each node that needs a sum in memory."""
    (arrived,) = [user for user in start.users if user.target is wait]
    readers: list[fx.Node | str] = []
    for view in arrived.users:
        if view.target is all_gather_shards:  # it computes nothing with the sum
            continue
        if view.target is not bucket_view:
            readers.append(f"{view.name} reads a whole bucket")
            continue
        for rows in view.users:
            others = [u for u in rows.users if not _is_gradient_of(u, rows)]
            if rows.target is not shard_rows or others:
                readers.append(f"{(others or [rows])[0].name} reads {view.args[1]}, and only updates may")
            else:
                readers.append(rows)
    return readers


def _is_gradient_of(update: fx.Node, rows: fx.Node) -> bool:
    """True if the node is an update that reads the rows as gradients only."""
    if update.target not in _UPDATES:
        return False
    others = [a for place, a in enumerate(update.args) if place != 1]
    flat = [n for a in others for n in (a if isinstance(a, Sequence) and not isinstance(a, str) else (a,))]
    return all(n is not rows for n in flat)


def _rewrite(graph: fx.Graph, start: fx.Node, slices: list[fx.Node]) -> None:
    buffer, first, _, group, degree, _ = start.args
    start.kwargs = {"sums": False}
    for rows in slices:
        view = cast("fx.Node", rows.args[0])
        arrived, like, offset = cast("tuple[fx.Node, fx.Node, int]", view.args)
        with graph.inserting_before(rows):
            args = (buffer, arrived, like, cast("int", first) + offset, *rows.args[1:], group, degree)
            gradient = graph.create_node("call_function", shard_gradient, args, {}, "shard_gradient")
        gradient.meta = {"role": rows.meta["role"], "source": rows.meta.get("source")}
        gradient.meta["val"] = infer(gradient)
        rows.replace_all_uses_with(gradient)
        graph.erase_node(rows)
        if not view.users:
            graph.erase_node(view)

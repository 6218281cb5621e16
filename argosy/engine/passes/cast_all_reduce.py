"""Send 32-bit gradients over the wire as 16-bit floats.

    before    s = all_reduce(g)                            g: float32
              r = wait(s)
    after     h = _to_copy(g, dtype=float16)
              s = all_reduce(h)
              w = wait(s)
              r = _to_copy(w, dtype=float32)               before the first reader

Halves the bytes of every all-reduce. Changes numerics: each gradient is rounded before the sum, and so is the sum (in
shared memory), or each partial sum (over sockets). The all-reduce is in place in h, so a copy of g that
insert_all_reduce made is erased. Paddle's name for it is `fp16_allreduce`. In pure 16-bit training those gradients are
sent so that are 16-bit already.
"""

# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import fx

from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.infer import infer
from argosy.engine.ir.periods import inherited
from argosy.engine.ops.collectives import all_reduce, wait
from argosy.engine.passes.base import Pass, Report, new_collectives

aten = torch.ops.aten


@dataclass(frozen=True)
class CastAllReduce(Pass):
    """See the module's picture. Runs after insert_all_reduce and before fuse_all_reduce."""

    name: ClassVar[str] = "cast_all_reduce"

    dtype: torch.dtype = torch.float16
    names: frozenset[str] | None = None
    """The gradients to cast; None: all."""

    def run(self, graph: fx.Graph) -> Report:
        all_reduces = new_collectives(graph, all_reduce)
        dtypes = {node: node.meta["val"].dtype for node in all_reduces}
        place = {node: number for number, node in enumerate(graph.nodes)}
        wide = [node for node in all_reduces if dtypes[node] == torch.float32 and self._is_cast(node)]
        for node in wide:
            _cast(graph, node, self.dtype, place)
        others = Counter(dtype_name(dtype) for node, dtype in dtypes.items() if node not in wide)
        text = f"{len(wide)} of {len(all_reduces)} gradients are sent as {dtype_name(self.dtype)}"
        left = ", ".join(f"{count} {name}" for name, count in others.items())
        return Report(len(wide), text + (f"; left alone: {left}" if left else ""))

    def _is_cast(self, node: fx.Node) -> bool:
        return self.names is None or node.args[2] in self.names


def _cast(graph: fx.Graph, started: fx.Node, dtype: torch.dtype, place: dict[fx.Node, int]) -> None:
    gradient = cast("fx.Node", started.args[0])
    (arrived,) = [user for user in started.users if user.target is wait]
    # Widen at the first reader: the sum stays narrow until then, and fuse_all_reduce may move the wait up to here.
    first = min(arrived.users, key=place.__getitem__, default=graph._root)
    with graph.inserting_before(started):
        narrow = _converted(graph, _uncopied(gradient), dtype, started)
    started.update_arg(0, narrow)
    for node in (started, arrived):
        node.meta["val"] = infer(node)
    if gradient is not narrow.args[0]:
        graph.erase_node(gradient)
    with graph.inserting_before(first):
        wide = _converted(graph, arrived, torch.float32, arrived)
    arrived.replace_all_uses_with(wide, delete_user_cb=lambda user: user is not wide)
    wide.meta["replaces"] = arrived.meta.pop("replaces", arrived)
    wide.meta["reduced"] = True


def _uncopied(gradient: fx.Node) -> fx.Node:
    """The source of a copy that insert_all_reduce made, or the gradient itself."""
    is_copy = gradient.target is aten.clone.default and gradient.meta["role"] == "communicate"
    return cast("fx.Node", gradient.args[0]) if is_copy else gradient


def _converted(graph: fx.Graph, source: fx.Node, dtype: torch.dtype, like: fx.Node) -> fx.Node:
    """A new node of role communicate at the graph's insertion point, with the source line of `like`."""
    name = f"to_{dtype_name(dtype)}"
    node = graph.create_node("call_function", aten._to_copy.default, (source,), {"dtype": dtype}, name)
    node.meta = {"role": "communicate", "source": like.meta.get("source"), **inherited(like)}
    node.meta["val"] = infer(node)
    return node

"""Add the gradients up over the ranks: one all_reduce for each parameter.

    before    g = convolution_backward(…)
              momentum(w, g, …)
    after     g = convolution_backward(…)
              s = all_reduce(g)               begins here
              …
              r = wait(s)                     directly behind, or (`overlap`) before the first reader
              momentum(w, r, …)

The sum is made in the gradient's own memory; a gradient whose memory something else reads later, or another
gradient lies in, is copied first. Two parameters with one gradient need one sum.
"""

# SPDX-License-Identifier: Apache-2.0
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import fx

from argosy.engine.ir.effects import storage
from argosy.engine.ir.infer import infer
from argosy.engine.ops.all_reduce import all_reduce, wait
from argosy.engine.passes.base import Pass, Report

aten = torch.ops.aten
_READERS = "optimize"


@dataclass(frozen=True)
class InsertAllReduce(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "insert_all_reduce"

    gradients: tuple[tuple[str, fx.Node], ...]
    """(name, node) of each gradient, in the order in which backward makes them."""
    group: str = "dp"
    overlap: bool = False

    def run(self, graph: fx.Graph) -> Report:
        reduced = sum(_is_reduced(node) for _, node in self.gradients)
        todo: dict[fx.Node, str] = {}
        for name, node in self.gradients:
            if not _is_reduced(node):
                todo.setdefault(node, name)
        shared = Counter(map(storage, todo))
        place = {node: number for number, node in enumerate(graph.nodes)}
        sharing = defaultdict(list)
        for node in place:
            sharing[storage(node)].append(node)
        copied = {n for n in todo if shared[storage(n)] > 1 or _is_read_later(n, sharing[storage(n)], place)}
        for node, name in todo.items():
            self._insert(graph, name, node, node in copied, place)
        text = f"{len(todo)} gradients are added up over group {self.group!r}"
        text += f", {len(copied)} of them in a copy" if copied else ""
        return Report(len(todo), text + (f"; {reduced} are added up already" if reduced else ""))

    def _insert(
        self, graph: fx.Graph, name: str, gradient: fx.Node, needs_copy: bool, place: dict[fx.Node, int]
    ) -> None:
        readers = [user for user in gradient.users if user.meta["role"] == _READERS]
        last = gradient
        if needs_copy:
            last = _behind(
                graph, last, aten.clone.default, (last,), {"memory_format": torch.contiguous_format}
            )
        last = _behind(graph, last, all_reduce, (last, self.group, name))
        if self.overlap and readers:
            first = min(readers, key=place.__getitem__)
            last = _behind(graph, first.prev, wait, (last,), like=last)
        else:
            last = _behind(graph, last, wait, (last,))
        for reader in readers:
            reader.replace_input_with(gradient, last)
        last.meta["stands_for"] = gradient


def _behind(
    graph: fx.Graph,
    before: fx.Node,
    target: torch._ops.OpOverload,
    args: tuple[object, ...],
    kwargs: dict[str, object] | None = None,
    like: fx.Node | None = None,
) -> fx.Node:
    """A new node of role communicate behind `before`, with the source line of `like` or of `before`."""
    with graph.inserting_after(before):
        made = graph.create_node("call_function", target, args, kwargs, target._opname)  # type: ignore[arg-type]
    made.meta = {"role": "communicate", "source": (like or before).meta.get("source")}
    made.meta["val"] = infer(made)
    return made


def _is_reduced(node: fx.Node) -> bool:
    return node.target is wait or bool(node.meta.get("reduced"))


def _is_read_later(gradient: fx.Node, sharing: list[fx.Node], place: dict[fx.Node, int]) -> bool:
    """True if the gradient's memory is read behind it by others than the optimizer, or lies in the scope."""
    if any(node.op != "call_function" for node in sharing) or not _is_dense(gradient.meta["val"]):
        return True
    readers = {user for node in sharing for user in node.users}
    return any(place[r] > place[gradient] and r.meta["role"] != _READERS for r in readers)


def _is_dense(value: torch.Tensor) -> bool:
    """True if the elements lie in memory without gaps and without overlap."""
    return bool(torch.ops.aten.is_non_overlapping_and_dense.default(value))

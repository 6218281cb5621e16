"""Sum the gradients over the ranks: one all_reduce per parameter.

    before    g = convolution_backward(…)
              momentum(w, g, …)
    after     g = convolution_backward(…)
              s = all_reduce(g)               starts here
              …
              r = wait(s)                     directly after it, or (`overlap`) before the first reader
              momentum(w, r, …)

The all-reduce is in place. A gradient is copied first if its storage is read later by something else, or shared
with another gradient. Two parameters with the same gradient share one all-reduce.
"""

# SPDX-License-Identifier: Apache-2.0
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import fx

from argosy.engine.ir.effects import storage
from argosy.engine.ir.infer import infer
from argosy.engine.ir.periods import inherited
from argosy.engine.ops.collectives import all_reduce, wait
from argosy.engine.passes.base import Pass, Report

aten = torch.ops.aten
_READERS = "optimize"


@dataclass(frozen=True)
class InsertAllReduce(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "insert_all_reduce"

    gradients: tuple[tuple[str, fx.Node], ...]
    """(name, node) of each gradient, in the order in which backward computes them."""
    group: str = "dp"
    overlap: bool = False

    def run(self, graph: fx.Graph) -> Report:
        reduced = sum(_is_reduced(node) for _, node in self.gradients)
        todo: dict[fx.Node, str] = {}
        for name, node in self.gradients:
            if not _is_reduced(node):
                todo.setdefault(node, name)
        gradients_in = Counter(map(storage, todo))
        place = {node: number for number, node in enumerate(graph.nodes)}
        aliases = defaultdict(list)
        for node in place:
            aliases[storage(node)].append(node)
        copied = {
            n for n in todo if gradients_in[storage(n)] > 1 or _is_read_later(n, aliases[storage(n)], place)
        }
        for node, name in todo.items():
            self._insert(graph, name, node, node in copied, place)
        text = f"{len(todo)} gradients are all-reduced over group {self.group!r}"
        text += f", {len(copied)} of them in a copy" if copied else ""
        return Report(len(todo), text + (f"; {reduced} are reduced already" if reduced else ""))

    def _insert(
        self, graph: fx.Graph, name: str, gradient: fx.Node, needs_copy: bool, place: dict[fx.Node, int]
    ) -> None:
        readers = [user for user in gradient.users if user.meta["role"] == _READERS]
        last = gradient
        if needs_copy:
            last = _insert_after(
                graph, last, aten.clone.default, (last,), {"memory_format": torch.contiguous_format}
            )
        last = _insert_after(graph, last, all_reduce, (last, self.group, name))
        if self.overlap and readers:
            first = min(readers, key=place.__getitem__)
            last = _insert_after(graph, first.prev, wait, (last,), like=last)
        else:
            last = _insert_after(graph, last, wait, (last,))
        for reader in readers:
            reader.replace_input_with(gradient, last)
        last.meta["replaces"] = gradient


def _insert_after(
    graph: fx.Graph,
    before: fx.Node,
    target: torch._ops.OpOverload,
    args: tuple[object, ...],
    kwargs: dict[str, object] | None = None,
    like: fx.Node | None = None,
) -> fx.Node:
    """A new node of role communicate after `before`, with the source line of `like` or of `before`."""
    with graph.inserting_after(before):
        node = graph.create_node("call_function", target, args, kwargs, target._opname)  # type: ignore[arg-type]
    like = like or before
    node.meta = {"role": "communicate", "source": like.meta.get("source"), **inherited(like)}
    node.meta["val"] = infer(node)
    return node


def _is_reduced(node: fx.Node) -> bool:
    return node.target is wait or bool(node.meta.get("reduced"))


def _is_read_later(gradient: fx.Node, aliases: list[fx.Node], place: dict[fx.Node, int]) -> bool:
    """True if nodes other than the optimizer read the gradient's storage later, or the scope owns it."""
    if any(node.op != "call_function" for node in aliases) or not _is_dense(gradient.meta["val"]):
        return True
    readers = {user for node in aliases for user in node.users}
    return any(place[r] > place[gradient] and r.meta["role"] != _READERS for r in readers)


def _is_dense(value: torch.Tensor) -> bool:
    """True if the elements fill their memory without gaps and without overlap."""
    return bool(torch.ops.aten.is_non_overlapping_and_dense.default(value))

"""Exchange several gradients at once instead of one by one.

    before    s1 = all_reduce(g1) … s2 = all_reduce(g2)
    after     s  = all_reduce_fused([g1, g2])               begins when the last gradient of the group exists
              s1 = s[0];  s2 = s[1]

Which gradients travel together is Paddle's rule: the gradients of a layer (the parameter's name up to its first
dot) stay together; layers are added, in the order of backward, until the group has at least `memory_mb` or more
than `max_gradients` gradients. Groups of mixed dtypes are split by dtype. Sparse gradients have no all_reduce and
stay apart. Paddle's names: `fuse_all_reduce_ops`, `fuse_grad_size_in_MB`, `_fuse_grad_size_in_TFLOPS`.
"""

# SPDX-License-Identifier: Apache-2.0
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from torch import fx

from argosy.engine.ir.infer import infer
from argosy.engine.log import logger
from argosy.engine.ops.all_reduce import all_reduce, all_reduce_fused, wait
from argosy.engine.passes.base import Pass, Report

_MIB = 1 << 20


@dataclass(frozen=True)
class FuseAllReduce(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "fuse_all_reduce"

    memory_mb: float = 32
    """A group is full from this size on; 0 or less: each layer is a group."""
    max_gradients: int = 50
    """A group is full with more gradients than these; 1 or less: any number."""

    def run(self, graph: fx.Graph) -> Report:
        found = _in_order(graph)
        groups = [part for group in self.groups(found) for part in _cut_at_readers(graph, group)]
        for group in groups:
            if len(group) > 1:
                _fuse(graph, group)
        if len(groups) < len(found):
            logger.warning(
                "Find all_reduce operators: %d. To make the speed faster, some all_reduce ops are fused during "
                "training, after fusion, the number of all_reduce ops is %d.",
                len(found),
                len(groups),
            )
        sizes = ", ".join(str(len(group)) for group in groups[:10]) + (", …" if len(groups) > 10 else "")
        text = f"{len(found)} all_reduce in {len(groups)} groups ({sizes})" if found else "no all_reduce"
        return Report(sum(len(group) > 1 for group in groups), text)

    def groups(self, nodes: Sequence[fx.Node]) -> list[list[fx.Node]]:
        """The groups of gradients, as lists of their all_reduce nodes."""
        layers: dict[str, list[fx.Node]] = {}
        for node in nodes:
            layers.setdefault(str(node.args[2]).removesuffix("@GRAD").split(".", 1)[0], []).append(node)
        merged: list[list[fx.Node]] = []
        is_full = True
        for layer in layers.values():
            if is_full:
                merged.append([])
            merged[-1] += layer
            too_many = 1 < self.max_gradients < len(merged[-1])
            is_full = self.memory_mb <= 0 or too_many or _mib(merged[-1]) >= self.memory_mb
        return [part for group in merged for part in _by_dtype(group)]


def _in_order(graph: fx.Graph) -> list[fx.Node]:
    """The all_reduce nodes in the order of backward; of one op's gradients the last first, as in Paddle."""
    place = {node: number for number, node in enumerate(graph.nodes)}

    def key(node: fx.Node) -> tuple[int, int]:
        gradient = node.all_input_nodes[0]
        if gradient.target is operator.getitem:
            producer, index = cast("tuple[fx.Node, int]", gradient.args)
            return place[producer], -index
        return place[gradient], 0

    return sorted(graph.find_nodes(op="call_function", target=all_reduce), key=key)


def _mib(group: Sequence[fx.Node]) -> float:
    values = [node.meta["val"] for node in group]
    return float(sum(value.numel() * value.element_size() for value in values)) / _MIB


def _by_dtype(group: list[fx.Node]) -> list[list[fx.Node]]:
    parts: dict[Any, list[fx.Node]] = {}
    for node in group:
        parts.setdefault((node.meta["val"].dtype, node.args[1]), []).append(node)
    return list(parts.values())


def _cut_at_readers(graph: fx.Graph, group: list[fx.Node]) -> list[list[fx.Node]]:
    """A sum that is read before another gradient exists cannot wait for it: a program may be minimized twice."""
    place = {node: number for number, node in enumerate(graph.nodes)}
    parts: list[list[fx.Node]] = []
    first_reader = -1
    for node in group:
        if place[node] > first_reader:
            parts.append([])
            first_reader = len(place)
        parts[-1].append(node)
        readers = [place[reader] for waiting in node.users for reader in waiting.users]
        first_reader = min([first_reader, *readers])
    return parts


def _fuse(graph: fx.Graph, group: list[fx.Node]) -> None:
    place = {node: number for number, node in enumerate(graph.nodes)}
    last = max(group, key=place.__getitem__)
    names = [str(node.args[2]) for node in group]
    what = f"{names[0]} … {names[-1]}"
    with graph.inserting_after(last):
        gradients = [node.args[0] for node in group]
        fused = graph.create_node(
            "call_function", all_reduce_fused, (gradients, last.args[1], what), {}, "all_reduce_fused"
        )
    fused.meta = {"role": "communicate", "source": last.meta.get("source")}
    fused.meta["val"] = infer(fused)
    behind = fused
    for index, node in enumerate(group):
        (waiting,) = [user for user in node.users if user.target is wait]
        with graph.inserting_after(behind):
            item = behind = graph.call_function(operator.getitem, (fused, index))
        item.meta = {"role": "communicate", "source": node.meta.get("source"), "val": node.meta["val"]}
        if place[waiting] <= place[last]:  # it stood directly behind its own all_reduce
            behind.append(waiting)
            behind = waiting
        node.replace_all_uses_with(item)
        graph.erase_node(node)

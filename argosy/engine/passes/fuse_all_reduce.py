"""Exchange several gradients at once: they lie one behind the other in a flat buffer, in the order of backward.

    before    s1 = all_reduce(g1) … s2 = all_reduce(g2)
    after     b  = gradient_buffer(…)
              p1 = put_gradient(b, g1, 0) … p2 = put_gradient(b, g2, 64)
              s  = all_reduce_fused(b, 0, 128)                begins when the last gradient of the group exists
              w  = wait(s)
              r1 = gradient_of(w, p1, 0);  r2 = gradient_of(w, p2, 64)

Which gradients travel together is Paddle's rule: the gradients of a layer (the parameter's name up to its first
dot) stay together; layers are added, in the order of backward, until the group has at least `memory_mb` or more
than `max_gradients` gradients. Groups of mixed dtypes are split by dtype; each dtype has a buffer. A slot begins
at a multiple of 256 bytes; a matrix product is computed in its slot. Sparse gradients have no all_reduce and
stay apart.
Paddle's names: `fuse_all_reduce_ops`, `fuse_grad_size_in_MB`, `_fuse_grad_size_in_TFLOPS`.
"""

# SPDX-License-Identifier: Apache-2.0
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import fx

from argosy.engine.ir.infer import infer
from argosy.engine.log import logger
from argosy.engine.ops.all_reduce import all_reduce, all_reduce_fused, wait
from argosy.engine.ops.flat_gradients import gradient_buffer, gradient_of, put_gradient, put_product
from argosy.engine.passes.base import Pass, Report, new_exchanges

aten = torch.ops.aten
_MIB = 1 << 20
_SLOT_BYTES = 256
_COPIES = (aten.clone.default, aten._to_copy.default)


@dataclass(frozen=True)
class FuseAllReduce(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "fuse_all_reduce"

    memory_mb: float = 32
    """A group is full from this size on; 0 or less: each layer is a group."""
    max_gradients: int = 50
    """A group is full with more gradients than these; 1 or less: any number."""
    one_by_one: bool = False
    """True: every gradient is a group, in the flat buffer all the same."""
    shared_by: str = "dp"
    """The ranks that may have their buffers in common memory: all of them, or those of a host ("dp/inner4")."""

    def run(self, graph: fx.Graph) -> Report:
        found = _in_order(graph)
        groups = [part for group in self.groups(found) for part in _cut_at_readers(graph, group)]
        for members in _by_dtype([node for group in groups for node in group]):
            self._fuse(graph, [group for group in groups if group[0] in members])
        if len(groups) < len(found):
            logger.warning(
                "Find all_reduce operators: %d. To make the speed faster, some all_reduce ops are fused during "
                "training, after fusion, the number of all_reduce ops is %d.",
                len(found),
                len(groups),
            )
        sizes = ", ".join(str(len(group)) for group in groups[:10]) + (", …" if len(groups) > 10 else "")
        text = f"{len(found)} all_reduce in {len(groups)} groups ({sizes})" if found else "no all_reduce"
        return Report(len(groups), text)

    def groups(self, nodes: Sequence[fx.Node]) -> list[list[fx.Node]]:
        """The groups of gradients, as lists of their all_reduce nodes."""
        if self.one_by_one:
            return [[node] for node in nodes]
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

    def _fuse(self, graph: fx.Graph, groups: list[list[fx.Node]]) -> None:
        """Put the groups, all of one dtype, into one buffer."""
        first_node = groups[0][0]
        value = first_node.meta["val"]
        numel = sum(_slot_size(node) for group in groups for node in group)
        name = f"@FUSEDVAR@@GRAD@{first_node.args[2]}"
        buffer_args = (numel, value.dtype, self.shared_by, name)
        place = {node: number for number, node in enumerate(graph.nodes)}
        earliest = min((node for group in groups for node in group), key=place.__getitem__)
        with graph.inserting_before(earliest):
            buffer = _made(graph, gradient_buffer, buffer_args, earliest, value.fake_mode)
        first = 0
        for group in groups:
            first = _fuse_group(graph, group, buffer, first, place)


def _fuse_group(
    graph: fx.Graph, group: list[fx.Node], buffer: fx.Node, first: int, place: dict[fx.Node, int]
) -> int:
    """Put one group into the buffer from `first` on; returns where the next one begins."""
    last = max(group, key=place.__getitem__)
    slots = {}
    at = first
    for node in group:
        with graph.inserting_before(node):
            slots[node] = _put(graph, node, buffer, at), at - first
        at += _slot_size(node)
    names = [str(node.args[2]) for node in group]
    what = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
    with graph.inserting_before(last):
        started = _made(graph, all_reduce_fused, (buffer, first, at - first, last.args[1], what), last)
    waits = {node: next(user for user in node.users if user.target is wait) for node in group}
    earliest = min(waits.values(), key=place.__getitem__)
    overlaps = place[earliest] > place[last]
    with graph.inserting_before(earliest) if overlaps else graph.inserting_after(started):
        behind = arrived = _made(graph, wait, (started,), earliest)
    for node in group:
        with graph.inserting_after(behind):
            behind = _made(graph, gradient_of, (arrived, *slots[node]), waits[node])
        _take_place(graph, waits[node], behind)
        source = cast("fx.Node", node.args[0])
        graph.erase_node(node)
        if not source.users and (_is_product(source) or _is_copy(source)):
            graph.erase_node(source)
    return at


def _put(graph: fx.Graph, node: fx.Node, buffer: fx.Node, at: int) -> fx.Node:
    """Write a gradient to its slot; a product that nothing else reads is computed there."""
    source = cast("fx.Node", node.args[0])
    if _is_product(source) and list(source.users) == [node]:
        return _made(graph, put_product, (buffer, *source.args, at), node)
    return _made(graph, put_gradient, (buffer, _origin(node), at), node)


def _is_product(node: fx.Node) -> bool:
    return node.target is aten.mm.default and not node.kwargs


def _is_copy(node: fx.Node) -> bool:
    """True for a copy that was made for the exchange alone."""
    return node.target in _COPIES and bool(node.meta["role"] == "communicate")


def _made(
    graph: fx.Graph,
    target: torch._ops.OpOverload,
    args: tuple[Any, ...],
    like: fx.Node,
    fake_mode: Any = None,
) -> fx.Node:
    made = graph.create_node("call_function", target, args, {}, target._opname)
    made.meta = {"role": "communicate", "source": like.meta.get("source")}
    if fake_mode is None:
        made.meta["val"] = infer(made)
    else:  # nothing goes in that could tell the mode
        with fake_mode:
            made.meta["val"] = target(*args)
    return made


def _take_place(graph: fx.Graph, old: fx.Node, new: fx.Node) -> None:
    """Readers and variables of `old` are those of `new` now."""
    for user in old.users:
        if user.meta.get("stands_for") is old:
            user.meta["stands_for"] = new
    new.meta["stands_for"] = old.meta.get("stands_for", old)
    new.meta["reduced"] = True
    old.replace_all_uses_with(new)
    graph.erase_node(old)


def _origin(node: fx.Node) -> fx.Node:
    """The gradient itself: a copy that was made for the exchange alone is not needed, the slot is one."""
    source = cast("fx.Node", node.args[0])
    return cast("fx.Node", source.args[0]) if _is_copy(source) else source


def _in_order(graph: fx.Graph) -> list[fx.Node]:
    """The all_reduce nodes in the order of backward; of one op's gradients the last first, as in Paddle."""
    place = {node: number for number, node in enumerate(graph.nodes)}

    def key(node: fx.Node) -> tuple[int, int]:
        gradient = _origin(node)
        if gradient.target is operator.getitem:
            producer, index = cast("tuple[fx.Node, int]", gradient.args)
            return place[producer], -index
        return place[gradient], 0

    return sorted(new_exchanges(graph, all_reduce), key=key)


def _mib(group: Sequence[fx.Node]) -> float:
    values = [node.meta["val"] for node in group]
    return float(sum(value.numel() * value.element_size() for value in values)) / _MIB


def _slot_size(node: fx.Node) -> int:
    """Elements that a gradient takes in the buffer, with what is left free behind it."""
    value = node.meta["val"]
    step = _SLOT_BYTES // value.element_size()
    return int(-(-value.numel() // step) * step)


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

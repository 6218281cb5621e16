"""Schedule the optimizer so that it starts with the gradients that arrive first.

Updates are recorded in the order of the parameters. Gradients arrive in the order of backward, roughly the opposite.
Waiting for the last all-reduce first would leave nothing to overlap with it:

    before    all_reduce(g2) … all_reduce(g1) │ wait g1 · update w1 · wait g2 · update w2
    after     all_reduce(g2) … all_reduce(g1) │ wait g2 · update w2 · wait g1 · update w1

The nodes after the last forward or backward node are list-scheduled: of the ready nodes, the one that depends on the
earliest collective comes first. Data dependencies and memory conflicts (one node mutates storage that another
touches) are respected; random ops and collectives keep their order. The results are the same.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import fx

from argosy.engine.ir.effects import is_collective, is_random, mutated_inputs
from argosy.engine.ops.collectives import wait
from argosy.engine.passes.base import Pass, Report

_NONE = -1
"""The collective's number for a node that waits for none."""
ByteRange = tuple[int, float, float]
"""Memory: storage, first byte, end."""
Successors = dict[fx.Node, dict[fx.Node, None]]
"""For each node the nodes that must run after it, in a fixed order."""


@dataclass(frozen=True)
class OrderUpdates(Pass):
    """See the module's picture. Runs last, if collectives overlap with computation."""

    name: ClassVar[str] = "order_updates"

    def run(self, graph: fx.Graph) -> Report:
        tail = _tail(graph)
        successors = _successors(tail)
        numbers = _awaited_collectives(graph, tail, successors)
        last = max(numbers.values(), default=_NONE)
        if last == _NONE:
            return Report(0, "no update waits for a collective")
        ordered = _schedule(tail, successors, numbers)
        previous = tail[0].prev
        for node in ordered:
            previous.append(node)
            previous = node
        old, new = ([n for n in nodes if _is_update(n)] for nodes in (tail, ordered))
        first_late = next(place for place, n in enumerate(ordered) if numbers[n] == last)
        early = sum(_is_update(n) for n in ordered[:first_late])
        moved = sum(a is not b for a, b in zip(old, new, strict=True))
        text = f"{moved} of {len(new)} updates moved; {early} run before the last collective has completed"
        return Report(moved, text)


def _tail(graph: fx.Graph) -> list[fx.Node]:
    """The nodes after the last forward or backward node."""
    tail = []
    for node in reversed(graph.nodes):
        if node.op != "call_function" or node.meta["role"] in ("forward", "backward"):
            break
        tail.append(node)
    return tail[::-1]


def _awaited_collectives(
    graph: fx.Graph, tail: Sequence[fx.Node], successors: Successors
) -> dict[fx.Node, int]:
    """For each node of the tail, the number of the latest collective that it waits for, in program order."""
    started = [n for n in graph.nodes if any(user.target is wait for user in n.users)]
    number_of = {node: number for number, node in enumerate(started)}
    numbers: dict[fx.Node, int] = {}
    for node in tail:
        inputs = node.all_input_nodes
        known = number_of if node.target is wait else numbers
        numbers[node] = max((known.get(n, _NONE) for n in inputs), default=_NONE)
    for node in reversed(tail):
        # A node that waits for nothing, such as the sign of a weight for L1Decay, is scheduled next to its update:
        # computing all of them first would hold a copy of the model.
        if numbers[node] == _NONE and not is_collective(node):
            numbers[node] = min((numbers[other] for other in successors[node]), default=_NONE)
    return numbers


def _schedule(tail: Sequence[fx.Node], successors: Successors, numbers: dict[fx.Node, int]) -> list[fx.Node]:
    """A topological order; of the ready nodes, the one with the lowest number, then the first in the program."""
    place = {node: number for number, node in enumerate(tail)}
    num_pending = Counter(other for node in tail for other in successors[node])
    ready = [(numbers[node], place[node]) for node in tail if not num_pending[node]]
    heapify(ready)
    ordered = []
    while ready:
        node = tail[heappop(ready)[1]]
        ordered.append(node)
        for other in successors[node]:
            num_pending[other] -= 1
            if not num_pending[other]:
                heappush(ready, (numbers[other], place[other]))
    assert len(ordered) == len(tail), f"{len(tail) - len(ordered)} nodes wait for each other"
    return ordered


# --- dependencies -------------------------------------------------------------------------------------


def _successors(tail: Sequence[fx.Node]) -> Successors:
    """For each node the nodes of the tail that must run after it."""
    successors = {node: dict.fromkeys(node.users) for node in tail}
    for in_order in ([n for n in tail if is_random(n)], [n for n in tail if is_collective(n)]):
        for node, other in pairwise(in_order):
            successors[node][other] = None
    for node, other in _memory_conflicts(tail):
        successors[node][other] = None
    return successors


def _memory_conflicts(tail: Sequence[fx.Node]) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Pairs of nodes, in order, that touch the same bytes, at least one of them mutating them."""
    readers: dict[int, list[tuple[fx.Node, ByteRange]]] = defaultdict(list)
    writers: dict[int, list[tuple[fx.Node, ByteRange]]] = defaultdict(list)
    for node in tail:
        mutated = set(mutated_inputs(node))
        for source in node.all_input_nodes:
            for touched in _byte_ranges(source.meta.get("val")):
                memory = touched[0]
                others = [*writers[memory], *(readers[memory] if source in mutated else ())]
                yield from ((o, node) for o, where in others if o is not node and _overlap(where, touched))
                (writers if source in mutated else readers)[memory].append((node, touched))


def _byte_ranges(value: Any) -> Iterator[ByteRange]:
    """The bytes that a value occupies; the whole storage if a size is symbolic."""
    if isinstance(value, tuple | list):
        for part in value:
            yield from _byte_ranges(part)
    elif isinstance(value, torch.Tensor):
        memory = value.untyped_storage()._cdata
        layout = (value.storage_offset(), *value.shape, *value.stride())
        if any(isinstance(number, torch.SymInt) for number in layout):
            yield memory, 0, math.inf
        elif value.numel():
            first, sizes, strides = int(value.storage_offset()), value.shape, value.stride()
            last = first + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
            yield memory, first * value.itemsize, (last + 1) * value.itemsize


def _overlap(a: ByteRange, b: ByteRange) -> bool:
    return a[1] < b[2] and b[1] < a[2]


def _is_update(node: fx.Node) -> bool:
    return node.meta["role"] == "optimize" and any(True for _ in mutated_inputs(node))

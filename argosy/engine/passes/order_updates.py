"""Let the optimizer begin with the gradients that arrive first.

Updates stand in the order of the parameters, and gradients arrive in the order of backward, which is about the
opposite. Waiting for the last exchange first would leave nothing to do while it is under way:

    before    all_reduce(g2) … all_reduce(g1) │ wait g1 · update w1 · wait g2 · update w2
    after     all_reduce(g2) … all_reduce(g1) │ wait g2 · update w2 · wait g1 · update w1

The nodes behind the last one of forward and backward are scheduled anew: always the one that depends on the
earliest exchange of those that may run. What reads a value, or touches memory that another node changes, stays
behind it; random numbers and exchanges keep their order. The numbers are the same.
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

from argosy.engine.ir.effects import changed_inputs, communicates, is_random
from argosy.engine.ops.all_reduce import wait
from argosy.engine.passes.base import Pass, Report

_NONE = -1
"""The number of the exchange that a node waits for, if it waits for none."""
Region = tuple[int, float, float]
"""Memory: which storage, first byte, end."""
Followers = dict[fx.Node, dict[fx.Node, None]]
"""For each node others, in a fixed order."""


@dataclass(frozen=True)
class OrderUpdates(Pass):
    """See the module's picture. Runs last, where exchanges overlap with computation."""

    name: ClassVar[str] = "order_updates"

    def run(self, graph: fx.Graph) -> Report:
        tail = _tail(graph)
        followers = _followers(tail)
        numbers = _exchanges(graph, tail, followers)
        last = max(numbers.values(), default=_NONE)
        if last == _NONE:
            return Report(0, "no update waits for an exchange")
        ordered = _schedule(tail, followers, numbers)
        behind = tail[0].prev
        for node in ordered:
            behind.append(node)
            behind = node
        old, new = ([n for n in nodes if _is_update(n)] for nodes in (tail, ordered))
        first_late = next(place for place, n in enumerate(ordered) if numbers[n] == last)
        early = sum(_is_update(n) for n in ordered[:first_late])
        moved = sum(a is not b for a, b in zip(old, new, strict=True))
        text = (
            f"{moved} of {len(new)} updates changed place; {early} run before the last exchange has arrived"
        )
        return Report(moved, text)


def _tail(graph: fx.Graph) -> list[fx.Node]:
    """The nodes behind the last one of forward and backward."""
    found = []
    for node in reversed(graph.nodes):
        if node.op != "call_function" or node.meta["role"] in ("forward", "backward"):
            break
        found.append(node)
    return found[::-1]


def _exchanges(graph: fx.Graph, tail: Sequence[fx.Node], followers: Followers) -> dict[fx.Node, int]:
    """For each node of the tail the number, in the order of the program, of the latest exchange it waits for."""
    begun = [n for n in graph.nodes if any(user.target is wait for user in n.users)]
    number_of = {node: number for number, node in enumerate(begun)}
    found: dict[fx.Node, int] = {}
    for node in tail:
        inputs = node.all_input_nodes
        known = number_of if node.target is wait else found
        found[node] = max((known.get(n, _NONE) for n in inputs), default=_NONE)
    for node in reversed(tail):
        # The sign of a weight, for L1Decay, stands beside its update: all at once would be a copy of the model.
        if found[node] == _NONE and not communicates(node):
            found[node] = min((found[other] for other in followers[node]), default=_NONE)
    return found


def _schedule(tail: Sequence[fx.Node], followers: Followers, numbers: dict[fx.Node, int]) -> list[fx.Node]:
    """In an order that is allowed; of the nodes that may run, the one with the lowest number, then the first."""
    place = {node: number for number, node in enumerate(tail)}
    missing = Counter(other for node in tail for other in followers[node])
    ready = [(numbers[node], place[node]) for node in tail if not missing[node]]
    heapify(ready)
    ordered = []
    while ready:
        node = tail[heappop(ready)[1]]
        ordered.append(node)
        for other in followers[node]:
            missing[other] -= 1
            if not missing[other]:
                heappush(ready, (numbers[other], place[other]))
    assert len(ordered) == len(tail), f"{len(tail) - len(ordered)} nodes wait for each other"
    return ordered


# --- what must stay before what -----------------------------------------------------------------------


def _followers(tail: Sequence[fx.Node]) -> Followers:
    """For each node those of the tail that must stay behind it."""
    found = {node: dict.fromkeys(node.users) for node in tail}
    for kept in ([n for n in tail if is_random(n)], [n for n in tail if communicates(n)]):
        for node, other in pairwise(kept):
            found[node][other] = None
    for node, other in _memory_conflicts(tail):
        found[node][other] = None
    return found


def _memory_conflicts(tail: Sequence[fx.Node]) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Pairs of nodes, in order, that touch the same memory, one of them changing it."""
    readers: dict[int, list[tuple[fx.Node, Region]]] = defaultdict(list)
    writers: dict[int, list[tuple[fx.Node, Region]]] = defaultdict(list)
    for node in tail:
        changed = set(changed_inputs(node))
        for source in node.all_input_nodes:
            for region in _regions(source.meta.get("val")):
                memory = region[0]
                others = [*writers[memory], *(readers[memory] if source in changed else ())]
                yield from ((o, node) for o, where in others if o is not node and _overlap(where, region))
                (writers if source in changed else readers)[memory].append((node, region))


def _regions(value: Any) -> Iterator[Region]:
    """The memory that a value lies in; with a size that is known only later, the whole storage."""
    if isinstance(value, tuple | list):
        for one in value:
            yield from _regions(one)
    elif isinstance(value, torch.Tensor):
        memory = value.untyped_storage()._cdata
        layout = (value.storage_offset(), *value.shape, *value.stride())
        if any(isinstance(number, torch.SymInt) for number in layout):
            yield memory, 0, math.inf
        elif value.numel():
            first, sizes, strides = int(value.storage_offset()), value.shape, value.stride()
            last = first + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
            yield memory, first * value.itemsize, (last + 1) * value.itemsize


def _overlap(one: Region, other: Region) -> bool:
    return one[1] < other[2] and other[1] < one[2]


def _is_update(node: fx.Node) -> bool:
    return node.meta["role"] == "optimize" and any(True for _ in changed_inputs(node))

"""When a step's values take memory, and when they take most.

    place        0    1    2    3    4
    x            ████████                    made at 0, read for the last time at 1
    y = relu(x)       ███████████████        kept for the node at 4
    s = sin(y)             ████
    …                      peak: x is gone, y and s are alive

A value lives from the node that makes it to its last reader, as codegen writes it. Views of a value, and what is
written over it, lie in the same block of memory. What a kernel takes for itself while it runs is not seen here.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import fx

from argosy.engine.ir.effects import is_lasting
from argosy.engine.ir.symbols import hint

SizeOf = Callable[[int | torch.SymInt], int]


@dataclass(frozen=True)
class Block:
    """Memory that the step takes; `node` makes it at place `first`, and it is free behind place `last`."""

    node: fx.Node
    holder: fx.Node
    """Whose value lies in it to the end: the node itself, a part of its result, a view, what was written over it."""
    memory: int
    """Which memory it is, as effects.storage says it."""
    nbytes: int
    first: int
    last: int


def blocks(nodes: Sequence[fx.Node], outputs: Sequence[fx.Node], size_of: SizeOf = hint) -> list[Block]:
    """The memory that nodes take when they run in this order; not that of feeds, variables and constants."""
    last = _last_places(nodes, outputs)
    outside = {memory for node in nodes for memory, _ in _not_made_by(node)}
    found: dict[int, Block] = {}
    for place, node in enumerate(nodes):
        for memory, nbytes in memories(node):
            if memory in outside:
                continue
            end = len(nodes) if is_lasting(node) else last[node]
            old = found.get(memory)
            if old is None:
                first = 0 if is_lasting(node) else place
                found[memory] = Block(node, node, memory, size_of(nbytes), first, end)
            elif end > old.last:
                found[memory] = replace(old, holder=node, last=end)
    return list(found.values())


def profile(found: Sequence[Block], places: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The bytes that are alive while each node runs."""
    change = np.zeros(places + 1, dtype=np.int64)
    for block in found:
        change[block.first] += block.nbytes
        if block.last + 1 < places:
            change[block.last + 1] -= block.nbytes
    return change[:places].cumsum()


def memories(node: fx.Node) -> Iterator[tuple[int, int | torch.SymInt]]:
    """The memory that a node's value lies in, and its size; several for an op with several results."""
    value = node.meta.get("val")
    for part in value if isinstance(value, tuple | list) else (value,):
        if isinstance(part, torch.Tensor):
            memory = part.untyped_storage()
            yield memory._cdata, memory.nbytes()


def _last_places(nodes: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> dict[fx.Node, int]:
    last: dict[fx.Node, int] = {}
    for place, node in enumerate(nodes):
        for one in (node, *node.all_input_nodes):
            last[one] = place
    return last | dict.fromkeys(outputs, len(nodes))


def _not_made_by(node: fx.Node) -> Iterator[tuple[int, int | torch.SymInt]]:
    for one in (node, *node.all_input_nodes):
        if one.op != "call_function":
            yield from memories(one)

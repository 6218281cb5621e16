"""Liveness of a step's allocations, and peak memory.

    place        0    1    2    3    4
    x            ████████                    allocated at 0, last use at 1
    y = relu(x)       ███████████████        kept for the node at 4
    s = sin(y)             ████
    …                      peak: x is freed, y and s are live

An allocation is live from the node that makes it to its last use, as in the code that codegen emits. Views of a value
and in-place results share its allocation. The workspace of a kernel is not included.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import fx

from argosy.engine.ir.effects import is_persistent
from argosy.engine.ir.symbols import hint

SizeOf = Callable[[int | torch.SymInt], int]


@dataclass(frozen=True)
class Allocation:
    """Memory that the step allocates at `node`, position `first`, and frees after position `last`."""

    node: fx.Node
    holder: fx.Node
    """The node with the last use: `node` itself, one of its getitems, a view, or an in-place result."""
    memory: int
    """Its storage, as returned by effects.storage."""
    nbytes: int
    first: int
    last: int


def allocations(
    nodes: Sequence[fx.Node], outputs: Sequence[fx.Node], size_of: SizeOf = hint
) -> list[Allocation]:
    """The allocations of nodes that run in this order; without feeds, variables and constants."""
    last = _last_places(nodes, outputs)
    external = {memory for node in nodes for memory, _ in _external_memories(node)}
    allocated: dict[int, Allocation] = {}
    for place, node in enumerate(nodes):
        for memory, nbytes in memories(node):
            if memory in external:
                continue
            end = len(nodes) if is_persistent(node) else last[node]
            old = allocated.get(memory)
            if old is None:
                first = 0 if is_persistent(node) else place
                allocated[memory] = Allocation(node, node, memory, size_of(nbytes), first, end)
            elif end > old.last:
                allocated[memory] = replace(old, holder=node, last=end)
    return list(allocated.values())


def profile(allocated: Sequence[Allocation], places: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The live bytes while each node runs."""
    delta = np.zeros(places + 1, dtype=np.int64)
    for allocation in allocated:
        delta[allocation.first] += allocation.nbytes
        if allocation.last + 1 < places:
            delta[allocation.last + 1] -= allocation.nbytes
    return delta[:places].cumsum()


def memories(node: fx.Node) -> Iterator[tuple[int, int | torch.SymInt]]:
    """(storage, bytes) of a node's value; several for an op with several outputs."""
    value = node.meta.get("val")
    for part in value if isinstance(value, tuple | list) else (value,):
        if isinstance(part, torch.Tensor):
            memory = part.untyped_storage()
            yield memory._cdata, memory.nbytes()


def _last_places(nodes: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> dict[fx.Node, int]:
    last: dict[fx.Node, int] = {}
    for place, node in enumerate(nodes):
        for used in (node, *node.all_input_nodes):
            last[used] = place
    return last | dict.fromkeys(outputs, len(nodes))


def _external_memories(node: fx.Node) -> Iterator[tuple[int, int | torch.SymInt]]:
    for source in (node, *node.all_input_nodes):
        if source.op != "call_function":
            yield from memories(source)

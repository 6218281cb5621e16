"""Which nodes of a step can go to a compiler together: runs of pure computation between communication.

    before    a · put g2 · b · all_reduce · c · dropout · d · put g1 · all_reduce · wait · update
    after     ▕ a b ▏ put g2 · all_reduce · ▕ c ▏ dropout · ▕ d ▏ put g1 · all_reduce · wait · update

Exchanges and waits stay where they are, and nothing moves across them: a gradient is handed over as early as before,
and no node waits for an exchange that it does not need. Between two of them nodes change places: what only reads
moves together, what changes memory, draws random numbers or gives a size stays a node of its own.
"""

# SPDX-License-Identifier: Apache-2.0
import operator
from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from argosy.engine.ir.effects import changed_inputs, communicates, is_lasting, is_random, storages
from argosy.engine.ops.all_reduce import wait
from argosy.engine.ops.spec import OpSpec

Group = tuple[fx.Node, ...]
_FEWEST = 2
"""Fewer computations than this gain nothing from being compiled together."""
_UNKNOWN_SIZE = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)


def outline(nodes: Sequence[fx.Node]) -> list[fx.Node | Group]:
    """The nodes in an order that gives the same results, with those in groups that can be compiled together."""
    changed = {memory for node in nodes for source in changed_inputs(node) for memory in storages(source)}
    pure: set[fx.Node] = set()
    for node in nodes:
        if node.args[0] in pure if node.target is operator.getitem else _is_pure(node, changed):
            pure.add(node)
    ordered: list[fx.Node | Group] = []
    segment: list[fx.Node] = []
    for node in nodes:
        if not _is_exchange(node):
            segment.append(node)
            continue
        ordered += [*_phases(segment, pure), node]
        segment = []
    return [*ordered, *_phases(segment, pure)]


def _is_exchange(node: fx.Node) -> bool:
    """Gives something to other ranks, or waits for it; making a buffer that they share is no exchange."""
    return node.target is wait or (communicates(node) and bool(node.all_input_nodes))


def _is_pure(node: fx.Node, changed: set[int]) -> bool:
    """True if the node does nothing but compute new tensors, of sizes that are known before."""
    target = node.target
    if not isinstance(target, OpOverload) or is_random(node) or communicates(node) or is_lasting(node):
        return False
    if target in OpSpec.known and any(a.alias_info for a in target._schema.arguments):
        return False
    values = [v for v in tree_leaves(node.meta.get("val")) if v is not None]
    if not values or not all(isinstance(v, torch.Tensor) for v in values):
        return False
    if target._schema.is_mutable or any(tag in target.tags for tag in _UNKNOWN_SIZE):
        return False
    # A view of memory that changes must stay a view, which a compiled function does not promise.
    shared = storages(node) & {memory for source in node.all_input_nodes for memory in storages(source)}
    return not shared & changed


def _phases(segment: Sequence[fx.Node], pure: set[fx.Node]) -> Iterator[fx.Node | Group]:
    """Single nodes (even phases) and groups (odd ones) by turns; each node in the first phase that it can be in."""
    phase: dict[fx.Node, int] = {}
    by_phase: defaultdict[int, list[fx.Node]] = defaultdict(list)
    last_ordered = 0
    for node, before in _dependencies(segment):
        kind = int(node in pure)
        found = max((phase[n] + (kind != int(n in pure)) for n in before), default=kind)
        found = max(found, kind)
        if is_random(node) or communicates(node):  # these keep their order
            last_ordered = found = max(found, last_ordered)
        phase[node] = found
        by_phase[found].append(node)
    for number in sorted(by_phase):
        is_group = number % 2 and sum(map(_computes, by_phase[number])) >= _FEWEST
        yield from [tuple(by_phase[number])] if is_group else by_phase[number]


def _dependencies(segment: Sequence[fx.Node]) -> Iterator[tuple[fx.Node, set[fx.Node]]]:
    """For each node those that must run before it: what it reads, and who touches memory that one of both changes."""
    seen: set[fx.Node] = set()
    writer: dict[int, fx.Node] = {}
    readers: defaultdict[int, set[fx.Node]] = defaultdict(set)
    for node in segment:
        before = set(node.all_input_nodes) & seen
        touched = {memory for source in node.all_input_nodes for memory in storages(source)}
        changed = {memory for source in changed_inputs(node) for memory in storages(source)}
        before |= {writer[memory] for memory in touched if memory in writer}
        for memory in changed:
            before |= readers.pop(memory, set())
            writer[memory] = node
        for memory in touched - changed:
            readers[memory].add(node)
        seen.add(node)
        yield node, before


def _computes(node: fx.Node) -> bool:
    """False for what only looks at memory that is there."""
    inputs = {memory for source in node.all_input_nodes for memory in storages(source)}
    return node.target is not operator.getitem and not storages(node) <= inputs

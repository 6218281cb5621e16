"""Partition a step into regions of pure nodes that can be compiled together, between collectives.

    before    a · copy g2 · b · all_reduce · c · dropout · d · copy g1 · all_reduce · wait · update
    after     ▕ a b ▏ copy g2 · all_reduce · ▕ c ▏ dropout · ▕ d ▏ copy g1 · all_reduce · wait · update

Collectives and waits stay in place, and no node moves across them: a gradient is sent as early as before, and no node
waits for a collective that it does not need. Between two of them nodes are reordered: pure nodes form regions; nodes
that mutate memory, are random or return a size stay outside of them.
"""

# SPDX-License-Identifier: Apache-2.0
import operator
from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from argosy.engine.ir.effects import is_collective, is_persistent, is_random, mutated_inputs, storages
from argosy.engine.ops.collectives import wait
from argosy.engine.ops.op_spec import OpSpec

RegionNodes = tuple[fx.Node, ...]
"""Pure nodes that are compiled together."""
_MIN_COMPUTATIONS = 2
"""A region with fewer computations gains nothing from being compiled."""
_UNKNOWN_SIZE = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)


def outline(nodes: Sequence[fx.Node]) -> list[fx.Node | RegionNodes]:
    """The nodes in an equivalent order, with those that can be compiled together as regions."""
    mutated = {memory for node in nodes for source in mutated_inputs(node) for memory in storages(source)}
    pure: set[fx.Node] = set()
    for node in nodes:
        if node.args[0] in pure if node.target is operator.getitem else _is_pure(node, mutated):
            pure.add(node)
    ordered: list[fx.Node | RegionNodes] = []
    segment: list[fx.Node] = []
    for node in nodes:
        if not _is_barrier(node):
            segment.append(node)
            continue
        ordered += [*_phases(segment, pure), node]
        segment = []
    return [*ordered, *_phases(segment, pure)]


def _is_barrier(node: fx.Node) -> bool:
    """True for a collective that sends data, and for a wait; allocating a shared buffer is none."""
    return node.target is wait or (is_collective(node) and bool(node.all_input_nodes))


def _is_pure(node: fx.Node, mutated: set[int]) -> bool:
    """True if the node only computes new tensors whose sizes do not depend on data."""
    target = node.target
    if not isinstance(target, OpOverload) or is_random(node) or is_collective(node) or is_persistent(node):
        return False
    if target in OpSpec.known and any(a.alias_info for a in target._schema.arguments):
        return False
    values = [v for v in tree_leaves(node.meta.get("val")) if v is not None]
    if not values or not all(isinstance(v, torch.Tensor) for v in values):
        return False
    if target._schema.is_mutable or any(tag in target.tags for tag in _UNKNOWN_SIZE):
        return False
    # Inductor gives 16-bit statistics to a norm of 16-bit values on the CPU; ATen's kernels give and take float32.
    if len({v.dtype for v in values if v.is_floating_point()}) > 1:
        return False
    # A view of mutated memory must stay a view, which a compiled function does not guarantee.
    aliased = storages(node) & {memory for source in node.all_input_nodes for memory in storages(source)}
    return not aliased & mutated


def _phases(segment: Sequence[fx.Node], pure: set[fx.Node]) -> Iterator[fx.Node | RegionNodes]:
    """Alternate single nodes (even phases) and regions (odd phases); each node is in its earliest possible phase."""
    phase: dict[fx.Node, int] = {}
    by_phase: defaultdict[int, list[fx.Node]] = defaultdict(list)
    last_ordered = 0
    for node, before in _dependencies(segment):
        parity = int(node in pure)
        earliest = max((phase[n] + (parity != int(n in pure)) for n in before), default=parity)
        earliest = max(earliest, parity)
        if is_random(node) or is_collective(node):  # these keep their order
            last_ordered = earliest = max(earliest, last_ordered)
        phase[node] = earliest
        by_phase[earliest].append(node)
    for number in sorted(by_phase):
        is_region = number % 2 and sum(map(_computes, by_phase[number])) >= _MIN_COMPUTATIONS
        yield from [tuple(by_phase[number])] if is_region else by_phase[number]


def _dependencies(segment: Sequence[fx.Node]) -> Iterator[tuple[fx.Node, set[fx.Node]]]:
    """For each node its predecessors: its inputs, and nodes with a memory conflict (one of the two mutates)."""
    seen: set[fx.Node] = set()
    writer: dict[int, fx.Node] = {}
    readers: defaultdict[int, set[fx.Node]] = defaultdict(set)
    for node in segment:
        before = set(node.all_input_nodes) & seen
        touched = {memory for source in node.all_input_nodes for memory in storages(source)}
        mutated = {memory for source in mutated_inputs(node) for memory in storages(source)}
        before |= {writer[memory] for memory in touched if memory in writer}
        for memory in mutated:
            before |= readers.pop(memory, set())
            writer[memory] = node
        for memory in touched - mutated:
            readers[memory].add(node)
        seen.add(node)
        yield node, before


def _computes(node: fx.Node) -> bool:
    """False for views and getitem."""
    inputs = {memory for source in node.all_input_nodes for memory in storages(source)}
    return node.target is not operator.getitem and not storages(node) <= inputs

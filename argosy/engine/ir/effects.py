"""Side effects of nodes: which inputs they mutate, whether they are random, collective or act outside the program."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from argosy.engine.ir.blocks import BlockCall, blocks_of
from argosy.engine.ops.op_spec import OpSpec


def mutated_inputs(node: fx.Node) -> Iterator[fx.Node]:
    """The inputs that the node's op mutates, according to its schema."""
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return
    for index, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
        for source in value if isinstance(value, list | tuple) else (value,):
            if isinstance(source, fx.Node):
                yield source


def is_random(node: fx.Node) -> bool:
    """True if the node draws random numbers: dropout, initialisers."""
    if isinstance(node.target, BlockCall):
        return node.target.is_random and any(map(is_random, nodes_inside(node)))
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return False
    arguments = [a.name for a in node.target._schema.arguments]
    if "dropout_p" in arguments:  # attention is random only with dropout
        index = arguments.index("dropout_p")
        rate = node.args[index] if index < len(node.args) else node.kwargs.get("dropout_p", 0.0)
        return bool(rate)
    return torch.Tag.nondeterministic_seeded in node.target.tags


def nodes_inside(node: fx.Node) -> Iterator[fx.Node]:
    """The nodes of the blocks that a node runs."""
    return (inner for block in blocks_of(node) for inner in block.nodes)


def storage(node: fx.Node) -> int | None:
    """The storage of the node's value, as a number; aliases of one tensor have the same storage."""
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def storages(node: fx.Node) -> set[int]:
    """The storages of the node's value, or of all of its outputs."""
    return storages_of(node.meta.get("val"))


def storages_of(value: Any) -> set[int]:
    """The storages of a value, or of all parts of a tuple or list."""
    parts = value if isinstance(value, tuple | list) else (value,)
    return {part.untyped_storage()._cdata for part in parts if isinstance(part, torch.Tensor)}


def is_collective(node: fx.Node) -> bool:
    """True if all ranks must run the node, in the same order."""
    spec = OpSpec.known.get(node.target)  # type: ignore[call-overload]  # any target is a valid key
    return spec is not None and spec.is_collective


def has_side_effects(node: fx.Node) -> bool:
    """True if the node acts outside of the program, such as sending to a server."""
    if isinstance(node.target, BlockCall):
        return any(map(has_side_effects, nodes_inside(node)))
    spec = OpSpec.known.get(node.target)  # type: ignore[call-overload]
    return spec is not None and spec.has_side_effects


def is_persistent(node: fx.Node) -> bool:
    """True if the value's storage outlives the step: feeds, variables, gradient buffers."""
    spec = OpSpec.known.get(node.target)  # type: ignore[call-overload]
    return node.op != "call_function" or (spec is not None and spec.persistent)


def live_nodes(
    graph: fx.Graph,
    wanted: set[fx.Node],
    with_updates: bool = True,
    without: Collection[fx.Node] = frozenset(),
) -> list[fx.Node]:
    """The nodes that `wanted` depends on, in order; with updates, also those that mutate the scope or act outside.

    A node that mutates memory is live if a live node reads that memory later, through any view. Nodes of `without` do
    not run, and no other node reads their results.
    """
    live = set(wanted)
    memory = {storage(n) for n in (*wanted, *(graph.find_nodes(op="placeholder") if with_updates else ()))}
    ordered = []
    for node in reversed(graph.nodes):
        if node in without:
            continue
        is_effect = with_updates and has_side_effects(node)
        if node in live or is_effect or any(storage(source) in memory for source in mutated_inputs(node)):
            ordered.append(node)
            live.update(node.all_input_nodes)
            memory.update(map(storage, node.all_input_nodes))
    return ordered[::-1]

"""What a node does besides giving a value: which of its inputs it changes, whether it draws random numbers."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator

import torch
from torch import fx
from torch._ops import OpOverload

from argosy.engine.ops.spec import OpSpec


def changed_inputs(node: fx.Node) -> Iterator[fx.Node]:
    """The inputs that the node's op writes to, by its schema."""
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return
    for place, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, fx.Node):
                yield one


def is_random(node: fx.Node) -> bool:
    """True if two runs may differ: dropout, initialisers."""
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return False
    arguments = [a.name for a in node.target._schema.arguments]
    if "dropout_p" in arguments:  # attention draws only if it drops
        place = arguments.index("dropout_p")
        rate = node.args[place] if place < len(node.args) else node.kwargs.get("dropout_p", 0.0)
        return bool(rate)
    return torch.Tag.nondeterministic_seeded in node.target.tags


def storage(node: fx.Node) -> int | None:
    """Which memory the node's value lies in; views of one tensor give the same number."""
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def storages(node: fx.Node) -> set[int]:
    """Which memory the node's value lies in, or its values, if it has several."""
    value = node.meta.get("val")
    parts = value if isinstance(value, tuple | list) else (value,)
    return {part.untyped_storage()._cdata for part in parts if isinstance(part, torch.Tensor)}


def communicates(node: fx.Node) -> bool:
    """True if all ranks must run the node, in the same order."""
    spec = OpSpec.known.get(node.target)  # type: ignore[call-overload]  # any target may be asked for
    return spec is not None and spec.communicates


def acts(node: fx.Node) -> bool:
    """True if the node does something outside of the program, such as telling a server."""
    spec = OpSpec.known.get(node.target)  # type: ignore[call-overload]
    return spec is not None and spec.acts


def is_lasting(node: fx.Node) -> bool:
    """True if the value's memory outlasts the step: feeds, variables, gradient buffers."""
    spec = OpSpec.known.get(node.target)  # type: ignore[call-overload]
    return node.op != "call_function" or (spec is not None and spec.lasting)


def needed(graph: fx.Graph, wanted: set[fx.Node], with_updates: bool = True) -> list[fx.Node]:
    """The nodes that `wanted` and, with updates, the changes of the scope's variables depend on, in order.

    A node that changes memory is needed by whoever reads that memory later, through whatever view.
    """
    alive = set(wanted)
    memory = {storage(n) for n in (*wanted, *(graph.find_nodes(op="placeholder") if with_updates else ()))}
    kept = []
    for node in reversed(graph.nodes):
        is_told = with_updates and acts(node)
        if node in alive or is_told or any(storage(c) in memory for c in changed_inputs(node)):
            kept.append(node)
            alive.update(node.all_input_nodes)
            memory.update(map(storage, node.all_input_nodes))
    return kept[::-1]

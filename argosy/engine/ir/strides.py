"""Infer the strides of values again, after passes that replaced ops by others with different result strides."""

# SPDX-License-Identifier: Apache-2.0
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from argosy.engine.ir.effects import storages, storages_of
from argosy.engine.ir.infer import infer
from argosy.engine.ir.symbols import hint
from argosy.engine.ops.op_spec import OpSpec

aten = torch.ops.aten
VIEWS = (aten.view.default, aten._unsafe_view.default)


def stale(graph: fx.Graph) -> list[fx.Node]:
    """The nodes that call one of Argosy's ops and whose result has other strides than their meta."""
    nodes = [n for n in graph.nodes if n.target in OpSpec.known and n.meta["role"] in ("forward", "backward")]
    return [n for n in nodes if "val" in n.meta and _layout(infer(n)) != _layout(n.meta["val"])]


def propagate(
    graph: fx.Graph, changed: Iterable[fx.Node], before: Callable[[fx.Node], bool] | None = None
) -> int:
    """Infer, in order, the values that depend on changed ones; an invalid view gets a contiguous copy of its input.

    `changed`: stale nodes, and variables whose values were replaced. `before` may change a node's inputs before it is
    inferred, and returns whether it did. Returns the number of copies.
    """
    replaced, aliased = set(changed), _aliased(graph)
    reshaped = 0
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        has_other_inputs = before is not None and before(node)
        if isinstance(node.target, OpOverload) and not node.target._schema.returns:
            continue
        if not has_other_inputs and node not in replaced and replaced.isdisjoint(node.all_input_nodes):
            continue
        if node.target in VIEWS and not _is_viewable(node):
            node.update_arg(0, convert(graph, node.args[0], node, torch.contiguous_format))
            reshaped += 1
        value = infer(node)
        is_same = _layout(value) == _layout(node.meta.get("val")) != []
        if is_same and _is_new_memory(value, node) and aliased.isdisjoint(storages(node)):
            continue  # what depends on it stays as it is
        node.meta["val"] = value
        replaced.add(node)
    return reshaped


def convert(graph: fx.Graph, source: Any, user: fx.Node, memory_format: torch.memory_format) -> fx.Node:
    """Insert a copy of the source in another memory format before its user."""
    with graph.inserting_before(user):
        copied = graph.call_function(aten.clone.default, (source,), {"memory_format": memory_format})
    copied.meta = {**source.meta, "role": user.meta["role"], "source": user.meta["source"]}
    copied.meta.pop("memory_format", None)
    copied.meta["val"] = infer(copied)
    return copied


def _layout(value: Any) -> list[tuple[torch.dtype, str, str]]:
    """Dtypes, shapes and strides; as text: comparing symbolic sizes would add assumptions about them."""
    tensors = [part for part in tree_leaves(value) if isinstance(part, torch.Tensor)]
    return [(part.dtype, str(part.shape), str(part.stride())) for part in tensors]


def _aliased(graph: fx.Graph) -> set[int]:
    """The storages that the values of several nodes have in common; the parts of a tuple do not count."""
    nodes = [n for n in graph.nodes if n.target is not operator.getitem]
    counts = Counter(memory for node in nodes for memory in storages(node))
    return {memory for memory, count in counts.items() if count > 1}


def _is_new_memory(value: Any, node: fx.Node) -> bool:
    """True for tensors that alias no input of the node: an alias of a replaced value must follow it."""
    return storages_of(value).isdisjoint(
        memory for source in node.all_input_nodes for memory in storages(source)
    )


def _is_viewable(node: fx.Node) -> bool:
    """Decided on a meta tensor: a fake tensor accepts [2, 8, 1, 4] in channels_last as [2, 32]."""
    source, sizes = cast("tuple[fx.Node, Sequence[Any]]", node.args)
    value = source.meta["val"]
    wanted = [n.meta["val"] if isinstance(n, fx.Node) else n for n in sizes]
    shape, strides, view = ([hint(n) for n in numbers] for numbers in (value.shape, value.stride(), wanted))
    try:
        torch.empty_strided(shape, strides, device="meta").view(view)
    except RuntimeError:
        return False
    return True

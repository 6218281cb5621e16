"""Infer the strides of every value again, after passes that replaced ops by others with different result strides."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from argosy.engine.ir.infer import infer
from argosy.engine.ir.symbols import hint
from argosy.engine.ops.op_spec import OpSpec

aten = torch.ops.aten
VIEWS = (aten.view.default, aten._unsafe_view.default)


def is_stale(graph: fx.Graph) -> bool:
    """True if the result of one of Argosy's ops has other strides than its node's meta."""
    nodes = [n for n in graph.nodes if n.target in OpSpec.known and n.meta["role"] in ("forward", "backward")]
    return any("val" in n.meta and _strides(infer(n)) != _strides(n.meta["val"]) for n in nodes)


def propagate(graph: fx.Graph, before: Callable[[fx.Node], None] | None = None) -> int:
    """Infer every value in order; a view that is invalid for the new strides gets a contiguous copy.

    Returns the number of copies. `before` may change a node's inputs before it is inferred.
    """
    reshaped = 0
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if before is not None:
            before(node)
        if isinstance(node.target, OpOverload) and not node.target._schema.returns:
            continue
        if node.target in VIEWS and not _is_viewable(node):
            node.update_arg(0, convert(graph, node.args[0], node, torch.contiguous_format))
            reshaped += 1
        node.meta["val"] = infer(node)
    return reshaped


def convert(graph: fx.Graph, source: Any, user: fx.Node, memory_format: torch.memory_format) -> fx.Node:
    """Insert a copy of the source in another memory format before its user."""
    with graph.inserting_before(user):
        copied = graph.call_function(aten.clone.default, (source,), {"memory_format": memory_format})
    copied.meta = {**source.meta, "role": user.meta["role"], "source": user.meta["source"]}
    copied.meta.pop("memory_format", None)
    copied.meta["val"] = infer(copied)
    return copied


def _strides(value: Any) -> list[str]:
    """As text: comparing symbolic strides would add assumptions about their sizes."""
    return [str(part.stride()) for part in tree_leaves(value) if isinstance(part, torch.Tensor)]


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

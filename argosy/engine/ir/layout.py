"""The order in memory of every value, computed anew after passes whose ops lay out their results otherwise."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from argosy.engine.ir.infer import infer
from argosy.engine.ir.symbols import hint
from argosy.engine.ops.spec import OpSpec

aten = torch.ops.aten
VIEWS = (aten.view.default, aten._unsafe_view.default)


def is_stale(graph: fx.Graph) -> bool:
    """True if an op of ours gives a value that lies otherwise than its node says."""
    ours = [n for n in graph.nodes if n.target in OpSpec.known and n.meta["role"] in ("forward", "backward")]
    return any("val" in n.meta and _strides(infer(n)) != _strides(n.meta["val"]) for n in ours)


def propagate(graph: fx.Graph, before: Callable[[fx.Node], None] | None = None) -> int:
    """Recompute every value in order; a view that it no longer allows gets a contiguous copy. Returns their number.

    `before` may change a node's inputs before it is computed.
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
    """A copy of the source in another order in memory, right before its user."""
    with graph.inserting_before(user):
        made = graph.call_function(aten.clone.default, (source,), {"memory_format": memory_format})
    made.meta = {**source.meta, "role": user.meta["role"], "source": user.meta["source"]}
    made.meta.pop("memory_format", None)
    made.meta["val"] = infer(made)
    return made


def _strides(value: Any) -> list[str]:
    """As text: asking whether symbolic strides are equal would bind their sizes."""
    return [str(one.stride()) for one in tree_leaves(value) if isinstance(one, torch.Tensor)]


def _is_viewable(node: fx.Node) -> bool:
    """Asked of a tensor without data: a fake one takes [2, 8, 1, 4] in channels_last for [2, 32]."""
    source, sizes = cast("tuple[fx.Node, Sequence[Any]]", node.args)
    value = source.meta["val"]
    wanted = [n.meta["val"] if isinstance(n, fx.Node) else n for n in sizes]
    shape, strides, view = ([hint(n) for n in numbers] for numbers in (value.shape, value.stride(), wanted))
    try:
        torch.empty_strided(shape, strides, device="meta").view(view)
    except RuntimeError:
        return False
    return True

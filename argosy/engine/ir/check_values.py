"""Debug check: infer the values of nodes again, and compare them with what their meta says.

    relu_1 = relu(conv_2)    inferred float32[N, 8] strides (8, 1), new memory
                             meta     float32[N, 8] strides (1, 8), new memory      ◀ reported

Passes compute the meta of the nodes that they add, and later passes, the memory plan and the kernels trust it. A wrong
dtype or shape shows up soon; a wrong stride or a wrong alias may corrupt values only for certain sizes.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from argosy.engine.errors import ProgramError
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.infer import infer
from argosy.engine.ir.verify import describe

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class ValueCheck:
    """Checks the nodes that were added or changed since the last check."""

    def __init__(self, graph: fx.Graph) -> None:
        self._checked = {node: _state(node) for node in graph.nodes}

    def check(self, graph: fx.Graph) -> None:
        """Raise ProgramError for the first node whose value differs from the inferred one."""
        for node in graph.nodes:
            state = _state(node)
            before = self._checked.get(node)
            if before is None or not _is_same(before, state):
                check_values([node])
                self._checked[node] = state


def check_values(nodes: Iterable[fx.Node]) -> None:
    """Raise ProgramError for the first node whose value differs from the inferred one."""
    for node in nodes:
        if (
            node.op != "call_function"
            or "val" not in node.meta
            or _depends_on_data(node)
            or _is_reshaped(node)
        ):
            continue
        inferred, recorded = (_text(node, v) for v in (infer(node), node.meta["val"]))
        if inferred != recorded:
            raise ProgramError(
                f"{describe(node)} calls {node.target}: its inputs give {inferred}, and its meta 'val' is {recorded}; "
                "set the meta of new and changed nodes to what `infer` returns"
            )


def _text(node: fx.Node, value: Any) -> str:
    """Dtype, shape, strides and aliases; as text, because comparing symbolic sizes would add assumptions."""
    parts = tree_leaves(value) if isinstance(value, tuple | list) else [value]
    texts = [_tensor_text(node, p) if isinstance(p, torch.Tensor) else str(p) for p in parts]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _tensor_text(node: fx.Node, value: torch.Tensor) -> str:
    # The stride of a dimension of one element is not used, and kernels differ in what they set it to.
    sizes = list(zip(value.shape, value.stride(), strict=True))
    strides = ", ".join("-" if str(size) == "1" else str(stride) for size, stride in sizes)
    text = f"{dtype_name(value.dtype)}[{', '.join(map(str, value.shape))}] strides ({strides})"
    memory = value.untyped_storage()._cdata
    aliased = [source.name for source in node.all_input_nodes if memory in _memory_of(source)]
    return f"{text}, {'aliases ' + ', '.join(aliased) if aliased else 'new memory'}"


def _memory_of(node: fx.Node) -> set[int]:
    leaves = tree_leaves(node.meta.get("val"))
    return {leaf.untyped_storage()._cdata for leaf in leaves if isinstance(leaf, torch.Tensor)}


def _depends_on_data(node: fx.Node) -> bool:
    """True if a size or number of the result depends on data: it is a new symbol at each inference."""
    if isinstance(node.target, OpOverload) and torch.Tag.data_dependent_output in node.target.tags:
        return True
    known = {symbol for source in node.all_input_nodes for symbol in _symbols(source.meta.get("val"))}
    return not _symbols(node.meta["val"]) <= known


def _is_reshaped(node: fx.Node) -> bool:
    """True if a later op, such as unsqueeze_, changes the shape of the value itself."""
    return any(
        isinstance(user.target, OpOverload) and torch.Tag.inplace_view in user.target.tags
        for user in node.users
    )


def _symbols(value: Any) -> set[Any]:
    """The symbols in the sizes of tensors, and in numbers."""
    sizes: list[Any] = []
    for leaf in tree_leaves(value):
        sizes += leaf.shape if isinstance(leaf, torch.Tensor) else [leaf]
    return {s for size in sizes if isinstance(size, _SYMBOLIC) for s in size.node.expr.free_symbols}


def _state(node: fx.Node) -> tuple[Any, list[Any]]:
    """What the value of a node depends on, and the value."""
    values = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    return (node.target, node.args, node.kwargs), values


def _is_same(before: tuple[Any, list[Any]], now: tuple[Any, list[Any]]) -> bool:
    values = zip(before[1], now[1], strict=False)
    return bool(before[0] == now[0]) and len(before[1]) == len(now[1]) and all(a is b for a, b in values)

"""Constant folding: the value of a node that depends only on constants, such as `torch.triu(torch.full((5, 5), -inf))`.

Code may read such a value while a program is built (`if (mask == causal).all()`): it is the same in every run.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from argosy.engine.ir.effects import is_collective, is_random, mutated_inputs, storage


def value_of_constant(node: fx.Node, constants: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """The node's value if it depends on no feed, variable, random number or unknown size, else None."""
    ordered = _ancestors(node)
    if ordered is None:
        return None
    values: dict[fx.Node, Any] = {}
    with _disable_current_modes(), torch.no_grad():
        for source in ordered:
            if source.op == "get_attr":
                values[source] = constants[str(source.target)].clone()
                continue
            args, kwargs = tree_map_only(fx.Node, values.__getitem__, (source.args, source.kwargs))
            values[source] = source.target(*args, **kwargs)  # type: ignore[operator]  # an op, checked by _ancestors
    value = values[node]
    return value if isinstance(value, torch.Tensor) else None


def _ancestors(node: fx.Node) -> list[fx.Node] | None:
    """The node and its ancestors, in order; None if they are not all constant."""
    ancestors, stack = {node}, [node]
    while stack:
        current = stack.pop()
        if current.op == "placeholder" or is_random(current) or is_collective(current):
            return None
        new = [source for source in current.all_input_nodes if source not in ancestors]
        ancestors.update(new)
        stack += new
    memory = {storage(ancestor) for ancestor in ancestors} - {None}
    ordered = []
    for other in node.graph.nodes:
        if other not in ancestors and any(storage(source) in memory for source in mutated_inputs(other)):
            return None  # mutated by a node that is not an ancestor
        if other in ancestors:
            ordered.append(other)
    return ordered

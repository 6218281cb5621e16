"""The value of a node that depends on constants alone: `torch.triu(torch.full((5, 5), -inf))`.

Code that asks for such a value while a program is built (`if (mask == causal).all()`) gets it: it is the same in
every run.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from argosy.engine.ir.effects import changed_inputs, communicates, is_random, storage


def value_of_constant(node: fx.Node, constants: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """The node's value if no feed, variable, random number or unknown size takes part in it, else None."""
    ordered = _ancestors(node)
    if ordered is None:
        return None
    values: dict[fx.Node, Any] = {}
    with _disable_current_modes(), torch.no_grad():
        for one in ordered:
            if one.op == "get_attr":
                values[one] = constants[str(one.target)].clone()
                continue
            args, kwargs = tree_map_only(fx.Node, values.__getitem__, (one.args, one.kwargs))
            values[one] = one.target(*args, **kwargs)  # type: ignore[operator]  # an op, checked by _ancestors
    value = values[node]
    return value if isinstance(value, torch.Tensor) else None


def _ancestors(node: fx.Node) -> list[fx.Node] | None:
    """The nodes that take part in a node's value, in order; None if they are not all constant."""
    needed, stack = {node}, [node]
    while stack:
        one = stack.pop()
        if one.op == "placeholder" or is_random(one) or communicates(one):
            return None
        new = [source for source in one.all_input_nodes if source not in needed]
        needed.update(new)
        stack += new
    memory = {storage(one) for one in needed} - {None}
    ordered = []
    for one in node.graph.nodes:
        if one not in needed and any(storage(c) in memory for c in changed_inputs(one)):
            return None  # a change in place that is not among the ancestors
        if one in needed:
            ordered.append(one)
    return ordered

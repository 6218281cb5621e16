"""Let the update of a weight write its 16-bit copy, which the next step reads instead of a cast.

    before    w16 = _to_copy(w, bfloat16)                    in every step
              y = convolution(x, w16)
              momentum(w, g, v, rate, …)
    after     w@bfloat16                                     an input of the step, kept in the scope
              y = convolution(x, w@bfloat16)
              momentum(w@bfloat16, g, v, rate, …, master=w)  updates w, and sets w@bfloat16 to its rounded value

Autocast runs it at its end, before the fusions. runtime/narrow_copies.py casts w before a step if anything else may
have written it. The cast stays if this step has no update of the weight, or if another node writes the weight, too
(sharded updates, averages over ranks, Lookahead), or if it is cast again after the update. The results are the same.
"""

# SPDX-License-Identifier: Apache-2.0
from collections import defaultdict
from typing import cast

import torch
from torch import fx

from argosy.engine.ir.effects import mutated_inputs, storage
from argosy.engine.ops.updates import UPDATES

aten = torch.ops.aten


def keep_copies(graph: fx.Graph, dtype: torch.dtype) -> int:
    """Replace casts of weights by copies that the updates write; returns their number."""
    writers: dict[int | None, list[fx.Node]] = defaultdict(list)
    for node in graph.nodes:
        for source in mutated_inputs(node):
            writers[storage(source)].append(node)
    weights = graph.find_nodes(op="placeholder")
    return sum(_keep_copy(graph, weight, dtype, writers[storage(weight)]) for weight in weights)


def _keep_copy(graph: fx.Graph, weight: fx.Node, dtype: torch.dtype, writers: list[fx.Node]) -> bool:
    casts = [n for n in weight.users if n.target is aten._to_copy.default and n.kwargs == {"dtype": dtype}]
    if len(casts) != 1 or len(writers) != 1 or not _is_update(writers[0], weight) or writers[0] < casts[0]:
        return False
    (cast_node,), (update,) = casts, writers
    with graph.inserting_after(weight):
        copy = graph.placeholder(f"{weight.name}_copy")
    copy.meta = {"role": weight.meta["role"], "val": cast_node.meta["val"], "copy_of": weight}
    cast_node.replace_all_uses_with(copy)
    graph.erase_node(cast_node)
    schema = update.target._schema.arguments  # type: ignore[union-attr]  # an op
    place = [argument.name for argument in schema].index("master")
    update.args = (copy, *update.args[1:place], weight)
    return True


def _is_update(node: fx.Node, weight: fx.Node) -> bool:
    """True if the node updates the whole weight, which is no master yet."""
    if node.target not in UPDATES or node.args[0] is not weight or node.kwargs.get("master") is not None:
        return False
    names = [argument.name for argument in cast("torch._ops.OpOverload", node.target)._schema.arguments]
    return len(node.args) == names.index("master")

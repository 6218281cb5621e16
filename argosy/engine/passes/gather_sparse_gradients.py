"""All-gather the looked-up rows of an embedding table's gradient instead of all-reducing the whole table.

    before    g = embedding_dense_backward(dy, ids)                  still to be all-reduced: V x D numbers
    after     rows, all_ids = gather_rows(dy, ids)                   every rank's ids, and D numbers for each
              g = embedding_dense_backward(rows, all_ids)            already the sum over the ranks

For tables built with `is_sparse` (Paddle's SelectedRows gradients). The gradient of a table with several lookups is
a sum of such gradients; each of them is rewritten. A rewritten gradient has `reduced` in its meta, and
insert_all_reduce skips it.
"""

# SPDX-License-Identifier: Apache-2.0
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import fx

from argosy.engine.errors import ConfigError
from argosy.engine.ir.infer import infer
from argosy.engine.ir.verify import describe
from argosy.engine.ops.collectives import gather_rows
from argosy.engine.passes.base import Pass, Report

aten = torch.ops.aten
_LOOKUP = aten.embedding_dense_backward.default


@dataclass(frozen=True)
class GatherSparseGradients(Pass):
    """See the module's picture. `ranks` is the size of the group."""

    name: ClassVar[str] = "gather_sparse_gradients"

    group: str = "dp"
    ranks: int = 1
    tables: frozenset[fx.Node] = frozenset()
    """The placeholders of the parameters that were built with is_sparse."""
    gradients: Mapping[fx.Node, fx.Node] = field(default_factory=dict)
    """The gradient's node, by the parameter's placeholder."""

    def run(self, graph: fx.Graph) -> Report:
        todo = [
            (t, g) for t, g in self.gradients.items() if t in self.tables and not g.meta.get("reduced", False)
        ]
        if self.ranks == 1:
            return Report(0, f"one rank: {len(todo)} sparse gradients need no gather")
        changed, left = 0, []
        for table, gradient in todo:
            lookups, reason = lookups_of(gradient)
            if reason:
                left.append(f"{table.name} left to all_reduce: {reason}")
                continue
            for lookup in lookups:
                _gather(graph, lookup, self.group)
            gradient.meta["reduced"] = True
            changed += len(lookups)
        text = f"{changed} lookups in {len(todo) - len(left)} tables gathered over {self.ranks} ranks"
        return Report(changed, "; ".join([text, *left]))


def lookups_of(gradient: fx.Node) -> tuple[list[fx.Node], str]:
    """The lookup gradients that sum up to this gradient, or why it is not such a sum."""
    lookups: dict[fx.Node, None] = {}
    parts = [gradient]
    while parts:
        part = parts.pop(0)
        if part.target is _LOOKUP:
            _check(part)
            lookups[part] = None
        elif part.target is aten.add.Tensor and not part.kwargs and len(part.args) == 2:
            parts.extend(n for n in part.args if isinstance(n, fx.Node))
        else:
            return [], f"{describe(part)} is no lookup's gradient"
        readers = [user.name for user in part.users if user.meta["role"] != "optimize"]
        if len(readers) > (0 if part is gradient else 1):  # a part is read by its sum
            return [], f"{describe(part)} is read by {', '.join(readers)} before it could be reduced"
    return list(lookups), ""


def _check(lookup: fx.Node) -> None:
    if lookup.args[4]:
        raise ConfigError(
            f"{describe(lookup)}: a sparse embedding with scale_grad_by_freq divides by how often an id occurs, "
            "which differs from rank to rank; build it without scale_grad_by_freq, or not sparse"
        )


def _gather(graph: fx.Graph, lookup: fx.Node, group: str) -> None:
    """Replace this rank's rows and ids by the gathered ones."""
    with graph.inserting_before(lookup):
        gathered = graph.create_node(
            "call_function", gather_rows, (*lookup.args[:2], group), name="gather_rows"
        )
        _set_meta(gathered, lookup)
        for place in (0, 1):
            item = graph.create_node(
                "call_function", operator.getitem, (gathered, place), name=("rows", "ids")[place]
            )
            _set_meta(item, lookup)
            lookup.update_arg(place, item)


def _set_meta(node: fx.Node, lookup: fx.Node) -> None:
    role: dict[str, Any] = {"role": "communicate"} if node.target is gather_rows else {}
    node.meta = {"role": lookup.meta["role"], "source": lookup.meta["source"], **role}
    node.meta["val"] = infer(node)

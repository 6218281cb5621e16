"""Send the gradient of an embedding table as the rows that were looked up, not as the whole table.

    before    g = embedding_dense_backward(dy, ids)                  to be added up over the ranks: V x D numbers
    after     rows, all_ids = gather_rows(dy, ids)                   every rank's ids, and D numbers for each
              g = embedding_dense_backward(rows, all_ids)            the sum over the ranks already

For tables built with `is_sparse` (Paddle's SelectedRows gradients). A table that is looked up several times
has a sum of such gradients; each of them is rewritten. A gradient that is done carries `reduced` in its meta,
and gets no all_reduce.
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
from argosy.engine.ops.gather_rows import gather_rows
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
    """The placeholder of each parameter and the node of its gradient."""

    def run(self, graph: fx.Graph) -> Report:
        todo = [
            (t, g) for t, g in self.gradients.items() if t in self.tables and not g.meta.get("reduced", False)
        ]
        if self.ranks == 1:
            return Report(0, f"one rank: {len(todo)} sparse gradients are complete already")
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
        done = f"{changed} lookups in {len(todo) - len(left)} tables gathered over {self.ranks} ranks"
        return Report(changed, "; ".join([done, *left]))


def lookups_of(gradient: fx.Node) -> tuple[list[fx.Node], str]:
    """The lookups whose gradients this one is the sum of, or why it is not such a sum."""
    found: dict[fx.Node, None] = {}
    parts = [gradient]
    while parts:
        part = parts.pop(0)
        if part.target is _LOOKUP:
            _check(part)
            found[part] = None
        elif part.target is aten.add.Tensor and not part.kwargs and len(part.args) == 2:
            parts.extend(n for n in part.args if isinstance(n, fx.Node))
        else:
            return [], f"{describe(part)} is no lookup's gradient"
        readers = [user.name for user in part.users if user.meta["role"] != "optimize"]
        if len(readers) > (0 if part is gradient else 1):  # a part is read by its sum
            return [], f"{describe(part)} is read by {', '.join(readers)} before it could be added up"
    return list(found), ""


def _check(lookup: fx.Node) -> None:
    if lookup.args[4]:
        raise ConfigError(
            f"{describe(lookup)}: a sparse embedding with scale_grad_by_freq divides by how often an id occurs, "
            "which differs from rank to rank; build it without scale_grad_by_freq, or not sparse"
        )


def _gather(graph: fx.Graph, lookup: fx.Node, group: str) -> None:
    """Put the gathered rows and ids in the place of this rank's."""
    with graph.inserting_before(lookup):
        gathered = graph.create_node(
            "call_function", gather_rows, (*lookup.args[:2], group), name="gather_rows"
        )
        _describe_as(gathered, lookup)
        for place in (0, 1):
            item = graph.create_node(
                "call_function", operator.getitem, (gathered, place), name=("rows", "ids")[place]
            )
            _describe_as(item, lookup)
            lookup.update_arg(place, item)


def _describe_as(made: fx.Node, lookup: fx.Node) -> None:
    role: dict[str, Any] = {"role": "communicate"} if made.target is gather_rows else {}
    made.meta = {"role": lookup.meta["role"], "source": lookup.meta["source"], **role}
    made.meta["val"] = infer(made)

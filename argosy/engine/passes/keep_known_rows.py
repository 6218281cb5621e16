"""Replace lookups in a full table by lookups in a sparse table that holds only the rows that exist.

    before    a = embedding(W, ids)
    after     a = lookup_known_rows(ids, W@IDS, W@ROWS, …)

For models that are exported from parameter servers, whose tables have rows for a few of 2**64 ids.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import fx

from argosy.engine.errors import ConfigError
from argosy.engine.ir.infer import infer
from argosy.engine.ir.verify import describe
from argosy.engine.ops.lookup_known_rows import lookup_known_rows
from argosy.engine.passes.base import Pass, Report
from argosy.engine.ps.table.table_spec import TableSpec

_LOOKUP = torch.ops.aten.embedding.default


@dataclass(frozen=True)
class KeepKnownRows(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "keep_known_rows"

    spec: TableSpec
    table: fx.Node
    """The placeholder of the whole table."""
    ids: fx.Node
    rows: fx.Node

    def run(self, graph: fx.Graph) -> Report:
        init = self.spec.initializer
        lookups = list(self.table.users)
        for lookup in lookups:
            if lookup.target is not _LOOKUP or lookup.args[0] is not self.table:
                raise ConfigError(
                    f"{describe(lookup)} reads the table {self.spec.name!r} itself, of which only some rows exist; use "
                    "it for lookups only"
                )
            initializer = (init.kind, init.a, init.b, init.seed, self.spec.name)
            with graph.inserting_before(lookup):
                sparse = graph.create_node(
                    "call_function",
                    lookup_known_rows,
                    (lookup.args[1], self.ids, self.rows, *initializer),
                    {},
                    "lookup_known_rows",
                )
            sparse.meta = {
                "role": lookup.meta["role"],
                "source": lookup.meta.get("source"),
                "replaces": lookup,
            }
            sparse.meta["val"] = infer(sparse)
            lookup.replace_all_uses_with(sparse)
            graph.erase_node(lookup)
        return Report(len(lookups), f"{len(lookups)} lookups in {self.spec.name} search its existing rows")

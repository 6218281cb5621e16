"""Replace lookups in local embedding tables by lookups on the parameter servers.

    before    a = embedding(W, ids_a)                      after   a, b = distributed_lookup_table([ids_a, ids_b], 'W')
              b = embedding(W, ids_b)
              …                                                    …
              g = embedding_dense_backward(da, ids_a)              push_rows([ids_a, ids_b], [da, db], rate, 1.0, 'W')
                + embedding_dense_backward(db, ids_b)
              sgd(W, g, rate)

All lookups in a table are one request with deduplicated ids; all gradients of its rows are one push. (Ids that depend
on rows of the same table need another request.) The trainer never holds the table itself.
"""

# SPDX-License-Identifier: Apache-2.0
import operator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import fx

from argosy.engine.errors import ConfigError
from argosy.engine.ir.effects import storage
from argosy.engine.ir.infer import infer, move_views
from argosy.engine.ir.verify import describe
from argosy.engine.ops.trainer_ops import lookup_table, push_rows
from argosy.engine.passes.base import Pass, Report
from argosy.engine.passes.gather_sparse_gradients import lookups_of
from argosy.engine.passes.send_gradients import is_dead

_LOOKUP = torch.ops.aten.embedding.default


@dataclass(frozen=True)
class RemoteTable:
    """A table that is stored on the servers."""

    name: str
    dim: int
    table: fx.Node
    """The placeholder of the parameter."""
    gradient: fx.Node | None
    rate: fx.Node | None
    factor: float = 1.0
    """Multiplies the learning rate for this parameter."""


@dataclass(frozen=True)
class RemoteTables(Pass):
    """See the module's picture. Runs after drop_local_updates."""

    name: ClassVar[str] = "remote_tables"

    tables: tuple[RemoteTable, ...]

    def run(self, graph: fx.Graph) -> Report:
        changed = 0
        for table in self.tables:
            lookups, ids = _lookups(graph, table), []
            for batch in _batches(graph, lookups):
                ids += _look_up(graph, table, batch)
            if table.gradient is not None and table.rate is not None:
                _push(graph, table, table.rate, ids)
            changed += len(lookups)
        return Report(changed, f"{changed} lookups in {len(self.tables)} tables run on the servers")


def _lookups(graph: fx.Graph, remote: RemoteTable) -> list[fx.Node]:
    for user in remote.table.users:
        if user.target is not _LOOKUP and user.meta["role"] != "optimize":
            raise ConfigError(
                f"{describe(user)} reads the table {remote.name!r} itself, which is stored on the servers; use it for "
                "lookups only, or build the embedding without is_sparse and is_distributed"
            )
    return [node for node in graph.nodes if node.target is _LOOKUP and node.args[0] is remote.table]


def _batches(graph: fx.Graph, lookups: list[fx.Node]) -> list[list[fx.Node]]:
    """Lookups that one request can serve, because their ids do not depend on rows; ids move before the first."""
    batches = []
    while lookups:
        dependents: set[fx.Node] = set(lookups)  # nodes that depend on rows
        for node in graph.nodes:
            if dependents.intersection(node.all_input_nodes):
                dependents.add(node)
        batch = [lookup for lookup in lookups if lookup.args[1] not in dependents]
        place = {node: number for number, node in enumerate(graph.nodes)}
        ancestors = {lookup.args[1] for lookup in batch}
        for node in reversed(graph.nodes):
            if node in ancestors:
                ancestors.update(node.all_input_nodes)
        late = [n for n in graph.nodes if n in ancestors and place[n] > place[batch[0]]]
        for node in late:
            batch[0].prepend(node)
        batches.append(batch)
        lookups = [lookup for lookup in lookups if lookup not in batch]
    return batches


def _look_up(graph: fx.Graph, table: RemoteTable, lookups: list[fx.Node]) -> list[fx.Node]:
    """Replace all lookups by one request; returns the nodes of the ids."""
    ids = [lookup.args[1] for lookup in lookups]
    with graph.inserting_before(lookups[0]):
        request = graph.create_node(
            "call_function", lookup_table, (ids, table.name, table.dim), {}, "distributed_lookup_table"
        )
        request.meta = {"role": "communicate", "source": lookups[0].meta.get("source")}
        request.meta["val"] = infer(request)
        for number, lookup in enumerate(lookups):
            item = graph.create_node("call_function", operator.getitem, (request, number), {}, lookup.name)
            item.meta = {**lookup.meta, "val": request.meta["val"][number], "replaces": lookup}
            lookup.replace_all_uses_with(item)
            move_views(item, storage(lookup))
    for lookup in lookups:
        graph.erase_node(lookup)
    return [i for i in ids if isinstance(i, fx.Node)]


def _push(graph: fx.Graph, table: RemoteTable, rate: fx.Node, ids: list[fx.Node]) -> None:
    """Insert one push after the last gradient of a row; erase the gradient of the whole table."""
    assert table.gradient is not None, "a table that is trained has a gradient"
    parts, reason = lookups_of(table.gradient)
    if reason:
        raise ConfigError(
            f"the gradient of the table {table.name!r} is not a sum over its lookups: {reason}; use the table for "
            "lookups only, and clip other gradients (ParamAttr(need_clip=False))"
        )
    by_ids = {part.args[1]: part for part in parts}
    if len(by_ids) == len(parts) and set(ids) >= by_ids.keys():
        # In the order of the lookup, so that the push reuses the deduplicated ids.
        parts = [by_ids[i] for i in dict.fromkeys(ids) if i in by_ids]
    place = {node: number for number, node in enumerate(graph.nodes)}
    grads = [part.args[0] for part in parts]
    last = max((node for part in parts for node in part.all_input_nodes), key=place.__getitem__)
    with graph.inserting_after(last):
        args = ([part.args[1] for part in parts], grads, rate, table.factor, table.name)
        push = graph.create_node("call_function", push_rows, args, {}, "push_rows")
    push.meta = {"role": "communicate", "source": table.gradient.meta.get("source")}
    push.meta["val"] = infer(push)
    for user in table.gradient.users:
        raise ConfigError(
            f"{describe(user)} reads the gradient of the whole table {table.name!r}, which no trainer has; clip by "
            "other parameters alone: ParamAttr(need_clip=False) for the table"
        )
    dead = [table.gradient]
    while dead:
        node = dead.pop()
        if not node._erased and is_dead(node):
            dead += node.all_input_nodes
            graph.erase_node(node)

"""Look rows up on the parameter servers instead of in a table of the trainer.

    before    a = embedding(W, ids_a)                      after   a, b = distributed_lookup_table([ids_a, ids_b], 'W')
              b = embedding(W, ids_b)
              …                                                    …
              g = embedding_dense_backward(da, ids_a)              push_rows([ids_a, ids_b], [da, db], rate, 1.0, 'W')
                + embedding_dense_backward(db, ids_b)
              sgd(W, g, rate)

All lookups of a table are one request, in which every id is asked for once; all gradients of its rows are one push.
(Ids that depend on rows of the same table are another request.)
The table itself is never on the trainer.
"""

# SPDX-License-Identifier: Apache-2.0
import operator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import fx

from argosy.engine.errors import ConfigError
from argosy.engine.ir.infer import infer
from argosy.engine.ir.verify import describe
from argosy.engine.ops.send import lookup_table, push_rows
from argosy.engine.passes.base import Pass, Report
from argosy.engine.passes.gather_sparse_gradients import lookups_of
from argosy.engine.passes.send_gradients import is_dead

_LOOKUP = torch.ops.aten.embedding.default


@dataclass(frozen=True)
class RemoteTable:
    """A table that lies on the servers."""

    name: str
    dim: int
    table: fx.Node
    """The placeholder of the parameter."""
    gradient: fx.Node | None
    rate: fx.Node | None
    factor: float = 1.0
    """Of the learning rate, for this parameter."""


@dataclass(frozen=True)
class RemoteTables(Pass):
    """See the module's picture. Runs behind leave_updates."""

    name: ClassVar[str] = "remote_tables"

    tables: tuple[RemoteTable, ...]

    def run(self, graph: fx.Graph) -> Report:
        changed = 0
        for one in self.tables:
            lookups, ids = _lookups(graph, one), []
            for group in _groups(graph, lookups):
                ids += _look_up(graph, one, group)
            if one.gradient is not None and one.rate is not None:
                _push(graph, one, one.rate, ids)
            changed += len(lookups)
        return Report(changed, f"{changed} lookups in {len(self.tables)} tables are answered by the servers")


def _lookups(graph: fx.Graph, one: RemoteTable) -> list[fx.Node]:
    for user in one.table.users:
        if user.target is not _LOOKUP and user.meta["role"] != "optimize":
            raise ConfigError(
                f"{describe(user)} reads the table {one.name!r} itself, which lies on the servers; use it for lookups "
                "only, or build the embedding without is_sparse and is_distributed"
            )
    return [node for node in graph.nodes if node.target is _LOOKUP and node.args[0] is one.table]


def _groups(graph: fx.Graph, lookups: list[fx.Node]) -> list[list[fx.Node]]:
    """Lookups that one request answers, whose ids do not depend on rows; these are made before the first of them."""
    groups = []
    while lookups:
        behind: set[fx.Node] = set(lookups)  # what depends on rows
        for node in graph.nodes:
            if behind.intersection(node.all_input_nodes):
                behind.add(node)
        now = [lookup for lookup in lookups if lookup.args[1] not in behind]
        place = {node: number for number, node in enumerate(graph.nodes)}
        wanted = {lookup.args[1] for lookup in now}
        for node in reversed(graph.nodes):
            if node in wanted:
                wanted.update(node.all_input_nodes)
        late = [n for n in graph.nodes if n in wanted and place[n] > place[now[0]]]
        for node in late:
            now[0].prepend(node)
        groups.append(now)
        lookups = [lookup for lookup in lookups if lookup not in now]
    return groups


def _look_up(graph: fx.Graph, one: RemoteTable, lookups: list[fx.Node]) -> list[fx.Node]:
    """One request in the place of all lookups; returns the nodes of the ids."""
    ids = [lookup.args[1] for lookup in lookups]
    with graph.inserting_before(lookups[0]):
        made = graph.create_node(
            "call_function", lookup_table, (ids, one.name, one.dim), {}, "distributed_lookup_table"
        )
        made.meta = {"role": "communicate", "source": lookups[0].meta.get("source")}
        made.meta["val"] = infer(made)
        for number, lookup in enumerate(lookups):
            item = graph.create_node("call_function", operator.getitem, (made, number), {}, lookup.name)
            item.meta = {**lookup.meta, "val": made.meta["val"][number], "stands_for": lookup}
            lookup.replace_all_uses_with(item)
    for lookup in lookups:
        graph.erase_node(lookup)
    return [i for i in ids if isinstance(i, fx.Node)]


def _push(graph: fx.Graph, one: RemoteTable, rate: fx.Node, ids: list[fx.Node]) -> None:
    """One push behind the last gradient of a row; what made a gradient of the whole table is gone."""
    assert one.gradient is not None, "a table that is trained has a gradient"
    parts, reason = lookups_of(one.gradient)
    if reason:
        raise ConfigError(
            f"the gradient of the table {one.name!r} is not a sum over its lookups: {reason}; use the table for "
            "lookups only, and clip other gradients (ParamAttr(need_clip=False))"
        )
    by_ids = {part.args[1]: part for part in parts}
    if (
        len(by_ids) == len(parts) and set(ids) >= by_ids.keys()
    ):  # the order of the lookup: its work serves twice
        parts = [by_ids[i] for i in dict.fromkeys(ids) if i in by_ids]
    place = {node: number for number, node in enumerate(graph.nodes)}
    grads = [part.args[0] for part in parts]
    last = max((node for part in parts for node in part.all_input_nodes), key=place.__getitem__)
    with graph.inserting_after(last):
        args = ([part.args[1] for part in parts], grads, rate, one.factor, one.name)
        made = graph.create_node("call_function", push_rows, args, {}, "push_rows")
    made.meta = {"role": "communicate", "source": one.gradient.meta.get("source")}
    made.meta["val"] = infer(made)
    for user in one.gradient.users:
        raise ConfigError(
            f"{describe(user)} reads the gradient of the whole table {one.name!r}, which no trainer has; clip by other "
            "parameters alone: ParamAttr(need_clip=False) for the table"
        )
    doomed = [one.gradient]
    while doomed:
        node = doomed.pop()
        if not node._erased and is_dead(node):
            doomed += node.all_input_nodes
            graph.erase_node(node)

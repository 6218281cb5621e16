"""Let the all-gathers of sharded parameters overlap with the next forward: wait where a parameter is first read.

    recorded      y = mm(x, w) … update of w's rows · all_gather_shards([w])
    compiled      await_gathers([w]) · y = mm(x, w) … update of w's rows · all_gather_shards([w])

A step waits for the all-gathers of the step before. Nodes that read a parameter after its all-gather, and fetches of
it, wait for that of their own step. Everything else that reads the scope waits, too (runtime/scope.py). Where the ranks
have the parameters in shared memory, or through it, no all-gather is in flight after a step, and an await does nothing.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import cast

from torch import fx

from argosy.engine.ir.effects import storage
from argosy.engine.ops.sharding import all_gather_shards, await_gathers


def insert_awaits(
    graph: fx.Graph, nodes: Sequence[fx.Node], outputs: Sequence[fx.Node]
) -> tuple[list[fx.Node], frozenset[fx.Node]]:
    """The nodes of a step with its awaits, and the parameters that it awaits.

    One await for each all-gather: it waits for all parameters of a bucket, which arrive together.
    """
    gathers = [node for node in nodes if node.target is all_gather_shards]
    parameters = {gather: cast("list[fx.Node]", gather.args[0]) for gather in gathers}
    memory_of = {gather: {storage(p) for p in parameters[gather]} for gather in gathers}
    in_flight = set(gathers)
    ordered: list[fx.Node] = []
    for node in nodes:
        if in_flight:
            touched = {storage(source) for source in node.all_input_nodes}
            for gather in [g for g in gathers if g in in_flight and memory_of[g] & touched]:
                ordered.append(_await(graph, node, parameters[gather]))
                in_flight.discard(gather)
        if node in memory_of:
            in_flight.add(node)
        ordered.append(node)
    fetched = {storage(node) for node in outputs}
    for gather in [g for g in gathers if g in in_flight and memory_of[g] & fetched]:
        ordered.append(_await(graph, gather, parameters[gather]))
    return ordered, frozenset(p for group in parameters.values() for p in group)


def _await(graph: fx.Graph, reader: fx.Node, parameters: list[fx.Node]) -> fx.Node:
    with graph.inserting_before(reader):
        node = graph.create_node("call_function", await_gathers, (parameters,), {}, "await_gathers")
    node.meta = {"role": "communicate", "source": reader.meta.get("source"), "val": None}
    return node

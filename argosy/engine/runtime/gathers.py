"""Let the all-gathers of sharded parameters overlap with the next forward: wait where a parameter is first read.

    recorded      y = mm(x, w) … update of w's rows · all_gather_shards([w])
    compiled      await_gathers([w]) · y = mm(x, w) … update of w's rows · all_gather_shards([w])

A step waits for the all-gathers of the step before. Nodes that read a parameter after its all-gather, and fetches of
it, wait for that of their own step. Everything else that reads the scope waits, too (runtime/scope.py). Where the ranks
have the parameters in shared memory, or through it, no all-gather is in flight after a step, and an await does nothing.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any, cast

from torch import fx

from argosy.engine.ir.effects import storage
from argosy.engine.ops.sharding import all_gather_shards, await_gathers


def gathered_parameters(graph: fx.Graph) -> list[list[fx.Node]]:
    """The parameters of each all-gather of a recorded program."""
    gathers = graph.find_nodes(op="call_function", target=all_gather_shards)
    return [cast("list[fx.Node]", gather.args[0]) for gather in gathers]


def insert_awaits(
    graph: fx.Graph,
    nodes: Sequence[fx.Node],
    outputs: Sequence[fx.Node],
    buckets: Sequence[Sequence[fx.Node]],
) -> list[fx.Node]:
    """The nodes of a step with its awaits: one for each bucket, whose parameters arrive together.

    `buckets`: the parameters of the program's all-gathers that the step reads. The step need not have the all-gathers:
    with gradient_merge not every step updates.
    """
    memory_of = [{storage(parameter) for parameter in bucket} for bucket in buckets]
    in_flight = set(range(len(buckets)))
    ordered: list[fx.Node] = []
    for node in nodes:
        touched = {storage(source) for source in node.all_input_nodes} if buckets else set()
        for number in sorted(n for n in in_flight if memory_of[n] & touched):
            ordered.append(_await(graph, buckets[number], node.meta.get("source")))
            in_flight.discard(number)
        ordered.append(node)
        if node.target is all_gather_shards:
            in_flight |= {number for number, memory in enumerate(memory_of) if memory & touched}
    fetched = {storage(node) for node in outputs}
    for number in sorted(n for n in in_flight if memory_of[n] & fetched):
        ordered.append(_await(graph, buckets[number]))
    return ordered


def _await(graph: fx.Graph, parameters: Sequence[fx.Node], source: Any = None) -> fx.Node:
    node = graph.create_node("call_function", await_gathers, (list(parameters),), {}, "await_gathers")
    node.meta = {"role": "communicate", "source": source, "val": None}
    return node

"""Move updates to parameter servers: the trainer sends gradients and receives parameters.

    before    g = mm(…)                                 after    g = mm(…)
              …                                                  s = send(g, rate, ['w.block0', …], [1024, …], [0, …])
              clip, decay                                        …
              momentum(w, g, v, rate)                            t = send_barrier([s, …])
                                                                 recv(w, t, ['w.block0', …], [1024, …], [0, …])
                                                                 fetch_barrier([w, …])

A gradient is sent directly after the node that computes it, so that the transfer overlaps with the rest of backward.
Nodes that only the updates needed are removed: they run on the servers.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import fx

from argosy.engine.ir.effects import mutated_inputs, storage
from argosy.engine.ir.infer import infer
from argosy.engine.ops.trainer_ops import fetch_barrier, geo_sync, push_rows, recv, send, send_barrier
from argosy.engine.passes.base import Pass, Report
from argosy.engine.ps.protocol.job_plan import Dense


@dataclass(frozen=True)
class DenseGradient:
    """A gradient to send, and the parameter that receives the updated values."""

    dense: Dense
    gradient: fx.Node
    rate: fx.Node
    parameter: fx.Node


@dataclass(frozen=True)
class DropLocalUpdates(Pass):
    """Remove the updates of these parameters, and what only they needed: clipping, decay."""

    name: ClassVar[str] = "drop_local_updates"

    parameters: frozenset[fx.Node]
    """Their placeholders."""
    live_out: frozenset[fx.Node] = frozenset()
    """Nodes that later passes read, such as a clipped gradient that is sent."""

    def run(self, graph: fx.Graph) -> Report:
        states = {storage(node) for node in self.parameters}
        count = 0
        for node in reversed(graph.nodes):
            if node.meta["role"] != "optimize" or node in self.live_out or node.users:
                continue
            mutated = {storage(state) for state in mutated_inputs(node)}
            if not mutated or mutated & states:
                graph.erase_node(node)
                count += 1
        return Report(count, f"{count} nodes of {len(self.parameters)} updates removed: the servers run them")


@dataclass(frozen=True)
class SendGradients(Pass):
    """See the module's picture. Runs after drop_local_updates and remote_tables."""

    name: ClassVar[str] = "send_gradients"

    gradients: tuple[DenseGradient, ...]

    def run(self, graph: fx.Graph) -> Report:
        sent = [_send(graph, gradient) for gradient in self.gradients]
        tokens = [node for node in graph.nodes if node.target is push_rows]
        barrier = at_end(graph, send_barrier, ([*sent, *tokens],))
        for gradient in self.gradients:
            args = (gradient.parameter, barrier, *placement(gradient.dense))
            at_end(graph, recv, args, gradient.parameter)
        at_end(graph, fetch_barrier, ([gradient.parameter for gradient in self.gradients],))
        blocks = sum(len(gradient.dense.blocks) for gradient in self.gradients)
        text = f"{len(sent)} gradients are sent in {blocks} blocks, those of {len(tokens)} tables by row"
        return Report(len(sent) + len(tokens), text)


@dataclass(frozen=True)
class InsertGeoSync(Pass):
    """Geo-SGD: the trainer updates locally, and synchronises its changes with the servers every k steps.

    before    momentum(w, g, v, rate)
    after     momentum(w, g, v, rate)
              geo_sync([w, …], ['w', …], k_steps)
    """

    name: ClassVar[str] = "insert_geo_sync"

    parameters: tuple[tuple[str, fx.Node], ...]
    k_steps: int

    def run(self, graph: fx.Graph) -> Report:
        names, nodes = [name for name, _ in self.parameters], [node for _, node in self.parameters]
        at_end(graph, geo_sync, (nodes, names, self.k_steps))
        return Report(len(nodes), f"{len(nodes)} parameters are synchronised every {self.k_steps} steps")


@dataclass(frozen=True)
class FetchStartup(Pass):
    """Initialize a trainer's parameters with the servers' values.

    before    w = mul(rand(…), …)
    after     w = recv(mul(rand(…), …), None, ['w.block0', …], …)
              fetch_barrier([w, …])
    """

    name: ClassVar[str] = "fetch_startup"

    values: tuple[tuple[Dense, fx.Node], ...]

    def run(self, graph: fx.Graph) -> Report:
        received = []
        for dense, node in self.values:
            value = at_end(graph, recv, (node, None, *placement(dense)), node)
            value.meta["replaces"] = node
            received.append(value)
        at_end(graph, fetch_barrier, (received,))
        return Report(len(received), f"{len(received)} parameters are initialized with the servers' values")


def placement(dense: Dense) -> tuple[list[str], list[int], list[int]]:
    """Names, rows and servers of the blocks, as arguments of the nodes."""
    return [b.name for b in dense.blocks], dense.rows, [b.server for b in dense.blocks]


def _send(graph: fx.Graph, dense: DenseGradient) -> fx.Node:
    with graph.inserting_after(dense.gradient):
        node = graph.create_node(
            "call_function", send, (dense.gradient, dense.rate, *placement(dense.dense)), {}, "send"
        )
    return _with_meta(node, dense.gradient)


def at_end(graph: fx.Graph, target: Any, args: tuple[Any, ...], like: fx.Node | None = None) -> fx.Node:
    """Append a node of role communicate, with the source line of `like`."""
    node = graph.create_node("call_function", target, args, {}, target._opname)
    return _with_meta(node, like)


def _with_meta(node: fx.Node, like: fx.Node | None) -> fx.Node:
    node.meta = {"role": "communicate", "source": like.meta.get("source") if like is not None else None}
    node.meta["val"] = infer(node) if node.all_input_nodes else None  # no inputs: the program has only tables
    return node


def is_dead(node: fx.Node) -> bool:
    """True if the node is pure and has no users."""
    return not node.users and node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor)

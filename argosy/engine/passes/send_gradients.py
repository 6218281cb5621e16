"""Let parameter servers do the updates: the trainer sends gradients and fetches parameters.

    before    g = mm(…)                                 after    g = mm(…)
              …                                                  s = send(g, rate, ['w.block0', …], [1024, …], [0, …])
              clip, decay                                        …
              momentum(w, g, v, rate)                            t = send_barrier([s, …])
                                                                 recv(w, t, ['w.block0', …], [1024, …], [0, …])
                                                                 fetch_barrier([w, …])

A gradient is sent directly behind the node that makes it, so that it travels while backward goes on. What only the
updates needed is gone: it runs on the servers.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import fx

from argosy.engine.ir.effects import changed_inputs, storage
from argosy.engine.ir.infer import infer
from argosy.engine.ops.send import fetch_barrier, geo_exchange, push_rows, recv, send, send_barrier
from argosy.engine.passes.base import Pass, Report
from argosy.engine.ps.plan import Dense


@dataclass(frozen=True)
class Sent:
    """A gradient to be sent, and where its parameter is to be filled."""

    dense: Dense
    gradient: fx.Node
    rate: fx.Node
    parameter: fx.Node


@dataclass(frozen=True)
class LeaveUpdates(Pass):
    """Take out the updates of these parameters, and what only they needed: clipping, decay."""

    name: ClassVar[str] = "leave_updates"

    parameters: frozenset[fx.Node]
    """Their placeholders."""
    kept: frozenset[fx.Node] = frozenset()
    """What is read later, such as a clipped gradient that is sent."""

    def run(self, graph: fx.Graph) -> Report:
        states = {storage(node) for node in self.parameters}
        count = 0
        for node in reversed(graph.nodes):
            if node.meta["role"] != "optimize" or node in self.kept or node.users:
                continue
            changed = {storage(one) for one in changed_inputs(node)}
            if not changed or changed & states:
                graph.erase_node(node)
                count += 1
        return Report(count, f"{count} nodes of {len(self.parameters)} updates are left to the servers")


@dataclass(frozen=True)
class SendGradients(Pass):
    """See the module's picture. Runs behind leave_updates and remote_tables."""

    name: ClassVar[str] = "send_gradients"

    gradients: tuple[Sent, ...]

    def run(self, graph: fx.Graph) -> Report:
        sent = [_send(graph, one) for one in self.gradients]
        tokens = [node for node in graph.nodes if node.target is push_rows]
        barrier = at_end(graph, send_barrier, ([*sent, *tokens],))
        for one in self.gradients:
            at_end(graph, recv, (one.parameter, barrier, *places(one.dense)), one.parameter)
        at_end(graph, fetch_barrier, ([one.parameter for one in self.gradients],))
        blocks = sum(len(one.dense.blocks) for one in self.gradients)
        text = f"{len(sent)} gradients are sent in {blocks} blocks, those of {len(tokens)} tables by row"
        return Report(len(sent) + len(tokens), text)


@dataclass(frozen=True)
class ExchangeChanges(Pass):
    """Geo-SGD: the trainer updates by itself, and exchanges what has changed every k steps.

    before    momentum(w, g, v, rate)
    after     momentum(w, g, v, rate)
              geo_exchange([w, …], ['w', …], k_steps)
    """

    name: ClassVar[str] = "exchange_changes"

    parameters: tuple[tuple[str, fx.Node], ...]
    k_steps: int

    def run(self, graph: fx.Graph) -> Report:
        names, nodes = [name for name, _ in self.parameters], [node for _, node in self.parameters]
        at_end(graph, geo_exchange, (nodes, names, self.k_steps))
        return Report(len(nodes), f"{len(nodes)} parameters are exchanged every {self.k_steps} steps")


@dataclass(frozen=True)
class FetchStartup(Pass):
    """A trainer begins with the values of the servers.

    before    w = mul(rand(…), …)
    after     w = recv(mul(rand(…), …), None, ['w.block0', …], …)
              fetch_barrier([w, …])
    """

    name: ClassVar[str] = "fetch_startup"

    values: tuple[tuple[Dense, fx.Node], ...]

    def run(self, graph: fx.Graph) -> Report:
        filled = []
        for dense, node in self.values:
            made = at_end(graph, recv, (node, None, *places(dense)), node)
            made.meta["stands_for"] = node
            filled.append(made)
        at_end(graph, fetch_barrier, (filled,))
        return Report(len(filled), f"{len(filled)} parameters begin with the servers' values")


def places(dense: Dense) -> tuple[list[str], list[int], list[int]]:
    """Names, rows and servers of the blocks, as the nodes have them."""
    return [b.name for b in dense.blocks], dense.rows, [b.server for b in dense.blocks]


def _send(graph: fx.Graph, one: Sent) -> fx.Node:
    with graph.inserting_after(one.gradient):
        made = graph.create_node(
            "call_function", send, (one.gradient, one.rate, *places(one.dense)), {}, "send"
        )
    return _described(made, one.gradient)


def at_end(graph: fx.Graph, target: Any, args: tuple[Any, ...], like: fx.Node | None = None) -> fx.Node:
    """A new last node of role communicate."""
    made = graph.create_node("call_function", target, args, {}, target._opname)
    return _described(made, like)


def _described(made: fx.Node, like: fx.Node | None) -> fx.Node:
    made.meta = {"role": "communicate", "source": like.meta.get("source") if like is not None else None}
    made.meta["val"] = infer(made) if made.all_input_nodes else None  # a program may have tables alone
    return made


def is_dead(node: fx.Node) -> bool:
    """True if nobody reads the node and it changes nothing."""
    return not node.users and node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor)

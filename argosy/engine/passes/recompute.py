"""Recompute activations in backward, from checkpoints, instead of storing them.

    before    a = conv(x); b = relu(a); c = conv(b); d = relu(c)       a, b, c, d are stored for backward
              loss = mean(d)
              dc = relu_backward(dd, d); db, dw = conv_backward(dc, b); …
    after     a = conv(x); b = relu(a); c = conv(b); d = relu(c)       c is a checkpoint: a, b are freed in forward
              loss = mean(d)
              dc = relu_backward(dd, d)
              a_recompute = conv(x); b_recompute = relu(a_recompute)
              db, dw = conv_backward(dc, b_recompute); …

A value is recomputed once, right before its first reader in backward, from checkpoints, feeds and parameters; so the
values of a segment are recomputed when backward reaches it. What comes after the last checkpoint is stored: backward
reads it at once. `recomputable.py` defines what is stored in any case; no random op, collective or update of the scope
runs twice. Results are equal bit for bit.

Runs on the copy of the program that is compiled, after autocast and the fusions, which match nodes of forward and
backward together, and before the passes that choose strides, kernels and in-place ops for old and new nodes alike.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import torch
from torch import fx

from argosy.engine.ir.effects import storages
from argosy.engine.ir.infer import infer
from argosy.engine.ir.liveness import SizeOf, allocations, profile
from argosy.engine.ir.symbols import hint
from argosy.engine.passes.base import Pass, Report
from argosy.engine.passes.recomputable import Forward
from argosy.engine.passes.recompute_plan import RecomputeSearch

CHECKPOINT = "checkpoint"
"""The meta key of the nodes whose values are stored; fusions move it to the node that replaces them."""


@dataclass(frozen=True)
class Recompute(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "recompute"

    is_auto: bool = False
    """True: choose what to store by `recompute_plan.py`; False: the nodes that are marked as checkpoints."""
    budget_bytes: int = 0
    """With `is_auto`: recompute as little as keeps the peak of the step within it; 0: the smallest peak."""
    live_out: frozenset[fx.Node] = frozenset()
    """Nodes whose values are read after the step: fetches, the scope."""
    size_of: SizeOf = field(default=hint, compare=False)
    """The sizes to plan for, if they vary."""

    def with_live_out(self, live_out: frozenset[fx.Node]) -> Self:
        return replace(self, live_out=live_out)

    def with_sizes(self, size_of: SizeOf) -> Self:
        return replace(self, size_of=size_of)

    def run(self, graph: fx.Graph) -> Report:
        forward = Forward(graph, self.live_out)
        if forward.boundary == len(forward.nodes):
            return Report(0, "there is no backward")
        before = self._peak(graph)
        search = RecomputeSearch(forward, self.live_out, self.size_of) if self.is_auto else None
        memories = _between_checkpoints(forward) if search is None else search.choose(self.budget_bytes)
        num_nodes = _recompute(graph, forward, memories)
        after = self._peak(graph)
        mib = 2**20
        text = f"{num_nodes} nodes are recomputed in backward, the peak of the step's values falls from "
        text += f"{before / mib:,.1f} to {after / mib:,.1f} MiB"
        warnings = []
        if search is not None and after + search.persistent > self.budget_bytes > 0:
            warnings.append(
                f"recompute: memory_budget_MB={self.budget_bytes / mib:,.0f} cannot be met; the computed peak is "
                f"{(after + search.persistent) / mib:,.0f} MB, of which {search.persistent / mib:,.0f} MB are "
                "parameters, optimizer state and feeds: use a smaller batch, or a larger budget"
            )
        return Report(num_nodes, text, warnings=tuple(warnings))

    def _peak(self, graph: fx.Graph) -> int:
        nodes = list(graph.nodes)
        return int(profile(allocations(nodes, list(self.live_out), self.size_of), len(nodes)).max())


def _between_checkpoints(forward: Forward) -> set[int]:
    """The storages to recompute: all that can be before the last checkpoint, except the checkpoints."""
    checkpoints = [node for node in forward.nodes[: forward.boundary] if node.meta.get(CHECKPOINT)]
    stored = {memory for node in checkpoints for memory in storages(node)}
    end = max((forward.place[node] for node in checkpoints), default=-1)
    return {
        memory for memory in forward.recomputable - stored if forward.place[forward.aliases[memory][0]] < end
    }


def _recompute(graph: fx.Graph, forward: Forward, memories: set[int]) -> int:
    """Recompute these storages before their first readers in backward; returns the number of new nodes."""
    places = _places(forward, memories)
    copies: dict[fx.Node, fx.Node] = {}
    count = len(graph.nodes)
    for node in forward.nodes[: forward.boundary]:
        if node in places:
            with graph.inserting_before(forward.nodes[places[node]]):
                copies[node] = _copy(graph, forward, node, copies)
    for reader in forward.nodes[forward.boundary :]:
        for source in reader.all_input_nodes:
            if source in copies:
                reader.replace_input_with(source, copies[source])
    _refresh_views(forward, memories)
    return len(graph.nodes) - count


def _places(forward: Forward, memories: set[int]) -> dict[fx.Node, int]:
    """Where each node is recomputed: before its first reader, and before any of its sources is mutated."""

    def demand(node: fx.Node, place: int) -> None:
        for source in forward.sources(node) if node in places else node.all_input_nodes:
            is_forward = source.op == "call_function" and forward.place[source] < forward.boundary
            if is_forward and storages(source) & memories:
                places[source] = min(places.get(source, place), place)

    places: dict[fx.Node, int] = {}
    for place in range(forward.boundary, len(forward.nodes)):
        demand(forward.nodes[place], place)
    for node in reversed(forward.nodes[: forward.boundary]):
        if node in places:
            places[node] = min(places[node], forward.first_write(node))
            demand(node, places[node])
    return places


def _copy(graph: fx.Graph, forward: Forward, node: fx.Node, copies: dict[fx.Node, fx.Node]) -> fx.Node:
    """Insert the node, or the call that recomputes its value, with the recomputed inputs."""
    recipe = forward.recipe(node)
    if recipe is None:
        target, args, kwargs = node.target, node.args, node.kwargs
    else:
        ((target, args, kwargs),) = recipe.calls
    new_args = fx.map_arg(args, lambda n: copies.get(n, n))
    new_kwargs = fx.map_arg(kwargs, lambda n: copies.get(n, n))
    copy = graph.create_node("call_function", target, new_args, new_kwargs, f"{node.name}_recompute")
    copy.meta = {"role": "backward", "source": node.meta.get("source")}
    copy.meta["val"] = infer(copy)
    return copy


def _refresh_views(forward: Forward, memories: set[int]) -> None:
    """Infer again the views in backward of recomputed values, which alias the recomputed storage now."""
    for node in forward.nodes[forward.boundary :]:
        if storages(node) & memories and isinstance(node.meta["val"], torch.Tensor):
            node.meta["val"] = infer(node)

"""Which values of forward can be recomputed in backward, and from what.

    pure ops, views                     the same op
    norm(x), bn_act(x)                  with the saved statistics (remat_recipes.py): running statistics are not touched
    dropout(x)                          x · mask / (1 - p), with the saved mask
    relu_(t), no other reader of t       t and relu_ again, in new memory

Everything else is stored: results of random ops and of collectives, values that are fetched, values whose inputs are
mutated before backward, and values of ops that act outside of the program or mutate the scope. So each of those runs
once in a step.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterator

import torch
from torch import fx
from torch._ops import OpOverload

from argosy.engine.ir.effects import (
    has_side_effects,
    is_collective,
    is_persistent,
    is_random,
    mutated_inputs,
    storage,
    storages,
)
from argosy.engine.passes.remat_recipes import Recipe, recipe_for

aten = torch.ops.aten
_UNKNOWN_SIZES = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)


class Forward:
    """The forward part of a step: its nodes before the first backward node, and the memory that they allocate."""

    def __init__(self, graph: fx.Graph, live_out: frozenset[fx.Node]) -> None:
        self.nodes = list(graph.nodes)
        self.place = {node: place for place, node in enumerate(self.nodes)}
        roles = [node.meta["role"] for node in self.nodes]
        self.boundary = roles.index("backward") if "backward" in roles else len(self.nodes)
        """The position of the first backward node."""
        self._live_out = live_out
        self._recipes: dict[fx.Node, Recipe | None] = {}
        self.aliases: dict[int, list[fx.Node]] = defaultdict(list)
        """By storage, its nodes in order: the value itself, views, in-place results."""
        self.writes: dict[int | None, list[int]] = defaultdict(list)
        """By storage, the positions of the nodes that mutate it."""
        external: set[int] = set()
        for place, node in enumerate(self.nodes):
            if is_persistent(node):
                external |= storages(node)
            for memory in storages(node):
                self.aliases[memory].append(node)
            for source in mutated_inputs(node):
                self.writes[storage(source)].append(place)
        self.allocated = [
            memory
            for memory, nodes in self.aliases.items()
            if memory not in external and self.place[nodes[0]] < self.boundary
        ]
        """The storages that forward allocates, in order."""
        self.recomputable = {memory for memory in self.allocated if self._is_recomputable(memory)}

    def recipe(self, node: fx.Node) -> Recipe | None:
        """How to recompute a node other than by its own op: from saved statistics or a saved mask."""
        if node not in self._recipes:
            self._recipes[node] = recipe_for(node) if node.target is operator.getitem else None
        return self._recipes[node]

    def sources(self, node: fx.Node) -> list[fx.Node]:
        """The nodes that recomputing a node reads."""
        recipe = self.recipe(node)
        return node.all_input_nodes if recipe is None else recipe.sources

    def steps(self, memory: int) -> Iterator[fx.Node]:
        """The nodes to recompute for the value of a storage: its aliases, and the op whose output it is."""
        for node in self.aliases[memory]:
            if isinstance(node.meta["val"], torch.Tensor) and self.place[node] < self.boundary:
                if node.target is operator.getitem and self.recipe(node) is None:
                    yield node.all_input_nodes[0]
                yield node

    def first_write(self, node: fx.Node) -> int:
        """The first position after a node where a source that it is recomputed from is mutated by another node."""
        node_storages = storages(node)
        sources = {storage(source) for source in self.sources(node)} - node_storages
        places = (p for source in sources for p in self.writes.get(source, ()) if p > self.place[node])
        return min(places, default=len(self.nodes))

    def _is_recomputable(self, memory: int) -> bool:
        aliases = self.aliases[memory]
        if self._live_out.intersection(aliases) or not all(map(self._can_run_again, self.steps(memory))):
            return False
        if any(self._is_statistic(node) for node in aliases):
            return False
        places = self.writes.get(memory, [])
        return all(place < self.boundary for place in places) and self._is_chain(
            memory, max(places, default=0)
        )

    def _is_chain(self, memory: int, end: int) -> bool:
        """True if before position `end` only the next alias reads each alias: none is read before a mutation."""
        aliases = set(self.aliases[memory])
        before = [
            node for node in aliases if self.place[node] < end and isinstance(node.meta["val"], torch.Tensor)
        ]
        return all(len(node.users) == 1 and aliases.issuperset(node.users) for node in before)

    def _can_run_again(self, node: fx.Node) -> bool:
        """True if a node has no effects but on its own memory, and its sources have the same values in backward."""
        if node.meta["role"] != "forward" or self.first_write(node) < self.boundary:
            return False
        if self.recipe(node) is not None:
            return True
        if is_random(node) or is_collective(node) or has_side_effects(node) or _updates_statistics(node):
            return False
        if isinstance(node.target, OpOverload) and any(tag in node.target.tags for tag in _UNKNOWN_SIZES):
            return False
        return {storage(n) for n in mutated_inputs(node)} <= storages(node)

    def _is_statistic(self, node: fx.Node) -> bool:
        """True for the statistics of a norm: they are small, and its output is recomputed from them."""
        if node.target is not operator.getitem or node.args[1] == 0:
            return False
        outputs = [user for user in node.all_input_nodes[0].users if user.args[1] == 0]
        return any(recipe is not None and node in recipe.sources for recipe in map(self.recipe, outputs))


def _updates_statistics(node: fx.Node) -> bool:
    """True for an ATen batch norm that mutates running statistics, which its schema does not say."""
    if node.target not in (aten.native_batch_norm.default, aten.cudnn_batch_norm.default):
        return False
    return node.args[3] is not None and bool(node.args[5])

"""Compute a value again for backward instead of keeping it, where one cheap pass over memory gives it back.

    before    y = relu(norm(x))        x is kept for the norm's backward, y for the next convolution's
              …
              dw = convolution_backward(dz, y, w)
    after     y = relu(norm(x))        dies after its last reader in forward
              …
              y' = relu(norm_again(x, …))
              dw = convolution_backward(dz, y', w)

Only from values that are kept anyway and that nobody changes meanwhile, and only while the peak falls: largest
first, up to a share of what is kept at the peak. `rebuilding.py` says what can be computed again.

A backward that looks at an input's shape alone, as that of a max pool does, gets another value of that shape that is
alive, for nothing. Paddle's name for saving memory is `memory_optimize`.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import fx

from argosy.engine.errors import ConfigError
from argosy.engine.ir.effects import changed_inputs, is_lasting, storage, storages
from argosy.engine.ir.infer import infer
from argosy.engine.ir.liveness import Block, blocks, profile
from argosy.engine.passes.base import Pass, Report
from argosy.engine.passes.rebuilding import Recipe, recipe_for, same_layout

aten = torch.ops.aten
DEFAULT_SHARE = 0.25
"""Of what is kept at the peak. All that can be rebuilt of ResNet50 is within it."""

# op -> the argument of which only shape, strides and dtype are read. Checked by a test that feeds NaN.
SHAPE_ALONE = {
    aten.max_pool2d_with_indices_backward.default: 1,
    aten.avg_pool2d_backward.default: 1,
    aten._adaptive_avg_pool2d_backward.default: 1,
}


@dataclass(frozen=True)
class RebuildActivations(Pass):
    """See the module's picture. Runs behind what changes layouts and before in_place."""

    name: ClassVar[str] = "rebuild_activations"

    kept: frozenset[fx.Node] = frozenset()
    """Nodes whose values are read after the step: fetches, the scope."""
    share: float = DEFAULT_SHARE
    """The most to give up of the bytes that are kept for backward at the peak; 1: all that can be rebuilt."""
    least_bytes: int = 2**20
    """Smaller values are not worth a node. Unknown sizes count as their hints, 13 samples in a batch."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConfigError(f"share is {self.share}; give the part to give up, from 0 (nothing) to 1 (all)")

    def run(self, graph: fx.Graph) -> Report:
        if all(node.meta["role"] != "backward" for node in graph.nodes):
            return Report(0, "there is no backward")
        if self.share == 0:
            return Report(0, "nothing is to be given up")
        swapped = _give_other_shapes(graph, self.least_bytes)
        step = _Step(graph, self.kept)
        chosen, before, after = step.choose(self.share, self.least_bytes)
        for value in chosen:
            _rebuild(graph, value)
        mib = sum(value.block.nbytes for value in chosen) / 2**20
        text = f"{len(chosen)} values ({mib:,.1f} MiB) are computed again for backward"
        text += f", the peak of the step's own values falls from {before / 2**20:,.1f} to {after / 2**20:,.1f} MiB"
        text += f"; {swapped} pools look at the shape of another value" if swapped else ""
        return Report(len(chosen) + swapped, text)


@dataclass(frozen=True)
class _Value:
    """A block of memory that can be given back between forward and backward."""

    block: Block
    root: fx.Node
    """The value itself; other nodes of the block are views of it."""
    readers: tuple[fx.Node, ...]
    """Who reads it, or a view of it, in backward; in order."""
    recipe: Recipe
    gap: slice
    """The places where its memory would be free."""

    @property
    def sources(self) -> set[int | None]:
        return {storage(node) for node in self.recipe.sources}


class _Step:
    """What the choice looks at: who makes, reads and changes each memory, and where."""

    def __init__(self, graph: fx.Graph, kept: frozenset[fx.Node]) -> None:
        self.nodes = list(graph.nodes)
        self.kept = kept
        self.place = {node: place for place, node in enumerate(self.nodes)}
        self.blocks = {block.memory: block for block in blocks(self.nodes, list(kept))}
        self.members: dict[int, list[fx.Node]] = defaultdict(list)
        self.writes: dict[int | None, list[int]] = defaultdict(list)
        for place, node in enumerate(self.nodes):
            for memory in storages(node):
                self.members[memory].append(node)
            for source in changed_inputs(node):
                self.writes[storage(source)].append(place)

    def choose(self, share: float, least_bytes: int) -> tuple[list[_Value], int, int]:
        """The values to rebuild, and the peak before and after; greedy, the largest at the present peak first."""
        alive = profile(list(self.blocks.values()), len(self.nodes))
        before = int(alive.max())
        budget = share * self._activations(int(alive.argmax()))
        values = [value for value in map(self._value, self.blocks.values()) if value is not None]
        left = sorted((v for v in values if v.block.nbytes >= least_bytes), key=lambda v: -v.block.nbytes)
        chosen: list[_Value] = []
        gone: set[int | None] = set()
        needed: set[int | None] = set()
        while left:
            top = int(alive.argmax())
            value = next((v for v in left if v.gap.start <= top < v.gap.stop), None)
            if value is None:
                break
            left.remove(value)
            trial = alive.copy()
            trial[value.gap] -= value.block.nbytes
            fits = value.block.nbytes <= budget and value.block.memory not in needed
            if fits and not value.sources & gone and trial.max() < alive.max():
                alive, budget = trial, budget - value.block.nbytes
                chosen.append(value)
                gone.add(value.block.memory)
                needed |= value.sources
        return chosen, before, int(alive.max())

    def _activations(self, place: int) -> int:
        """The bytes that forward made and that are alive at a place."""
        there = [b for b in self.blocks.values() if b.first <= place <= b.last]
        return sum(b.nbytes for b in there if b.node.meta["role"] == "forward")

    def _value(self, block: Block) -> _Value | None:
        """The block as a value that can be rebuilt; None if it cannot, or need not."""
        members = self.members[block.memory]
        early = [node for node in members if node.meta["role"] == "forward"]
        readers = dict.fromkeys(
            user for node in early for user in node.users if user.meta["role"] != "forward"
        )
        roots = [node for node in early if isinstance(node.meta["val"], torch.Tensor)]
        if not readers or not roots or self.writes[block.memory] or self.kept & set(members):
            return None
        ordered = sorted(readers, key=self.place.__getitem__)
        last_early = max(self.place[one] for node in early for one in (node, *_forward(node)))
        gap = slice(last_early + 1, self.place[ordered[0]])
        recipe = recipe_for(roots[0])
        if gap.start >= gap.stop or recipe is None or not all(map(_is_view, roots[1:])):
            return None
        if not all(self._is_there(source, self.place[roots[0]], gap.stop) for source in recipe.sources):
            return None
        return _Value(block, roots[0], tuple(ordered), recipe, gap)

    def _is_there(self, source: fx.Node, begin: int, end: int) -> bool:
        """True if the source is alive at the end anyway and nobody changes it from begin to end."""
        memory = storage(source)
        if memory is None:
            return not isinstance(source.meta["val"], tuple | list)  # a size
        is_alive = memory not in self.blocks or self.blocks[memory].last >= end
        return is_alive and not any(begin < place < end for place in self.writes[memory])


def _forward(node: fx.Node) -> Iterator[fx.Node]:
    return (user for user in node.users if user.meta["role"] == "forward")


def _is_view(node: fx.Node) -> bool:
    """True if the node only looks at its first input in another shape."""
    first: Any = node.args[0] if node.args else None
    return isinstance(first, fx.Node) and node.op == "call_function" and not list(changed_inputs(node))


def _rebuild(graph: fx.Graph, value: _Value) -> None:
    """Make the value again before its first reader in backward, and let those readers read that."""
    copies: dict[fx.Node, fx.Node] = {}
    with graph.inserting_before(value.readers[0]):
        copies[value.root] = value.recipe.build(graph)
        for reader in value.readers:
            for source in reader.all_input_nodes:
                _copy_view(graph, source, copies, value.block.memory)
    for reader in value.readers:
        for old, new in copies.items():
            reader.replace_input_with(old, new)
    _refresh_views(value.readers, value.block.memory)


def _copy_view(graph: fx.Graph, node: fx.Node, copies: dict[fx.Node, fx.Node], memory: int) -> None:
    """If the node is a view of the value: the same view of what was made again."""
    if node in copies or storage(node) != memory or node.meta["role"] != "forward":
        return
    for source in node.all_input_nodes:
        _copy_view(graph, source, copies, memory)
    made = graph.node_copy(node, lambda n: copies.get(n, n))
    made.meta = {"role": "backward", "source": node.meta.get("source")}
    made.meta["val"] = infer(made)
    copies[node] = made


def _refresh_views(readers: tuple[fx.Node, ...], memory: int) -> None:
    """Views that backward makes of the value lie in the new memory now."""
    todo = [node for node in readers if storage(node) == memory]
    while todo:
        node = todo.pop(0)
        node.meta["val"] = infer(node)
        todo += [user for user in node.users if storage(user) == memory]


# --- shapes alone -------------------------------------------------------------------------------------


def _give_other_shapes(graph: fx.Graph, least_bytes: int) -> int:
    """Let backwards that look at a shape alone look at a value that is alive there anyway; returns how many."""
    found = [n for n in graph.nodes if n.target in SHAPE_ALONE and "looks_elsewhere" not in n.meta]
    if not found:
        return 0
    nodes = list(graph.nodes)
    life = {block.memory: block for block in blocks(nodes, [])}
    place = {node: number for number, node in enumerate(nodes)}
    swapped = 0
    for node in found:
        index = SHAPE_ALONE[node.target]
        own: Any = node.args[index]
        block = life.get(storage(own) or 0)
        if block is None or block.nbytes < least_bytes or any(is_lasting(one) for one in (own, block.node)):
            continue
        others = (one for one in nodes[: place[own]][::-1] if _may_stand_in(one, own, life, place[node]))
        if (other := next(others, None)) is not None:
            node.update_arg(index, other)
            node.meta["looks_elsewhere"] = True
            swapped += 1
    return swapped


def _may_stand_in(node: fx.Node, own: fx.Node, life: dict[int, Block], end: int) -> bool:
    """True if the node's value looks like that of `own` and lives longer than `end` anyway."""
    block = life.get(storage(node) or 0)
    return block is not None and block.memory != storage(own) and block.last > end and same_layout(node, own)

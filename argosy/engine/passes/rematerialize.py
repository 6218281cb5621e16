"""Recompute activations for backward instead of keeping them, where that takes one cheap pass over memory.

    before    y = relu(norm(x))        x is stored for the norm's backward, y for the next convolution's
              …
              dw = convolution_backward(dz, y, w)
    after     y = relu(norm(x))        freed after its last reader in forward
              …
              y' = relu(batch_norm_recompute(x, …))
              dw = convolution_backward(dz, y', w)

Values are recomputed only from values that are live anyway and not mutated in between, and only while the peak
memory falls: largest first, up to a share of the activations that are live at the peak. `remat_recipes.py` defines
what can be recomputed.

A backward op that reads only the shape of an input, such as that of a max pool, gets another live value of that shape,
at no cost. Paddle's name for saving memory is `memory_optimize`.
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
from argosy.engine.ir.effects import is_persistent, mutated_inputs, storage, storages
from argosy.engine.ir.infer import infer
from argosy.engine.ir.liveness import Allocation, allocations, profile
from argosy.engine.passes.base import Pass, Report
from argosy.engine.passes.remat_recipes import Recipe, recipe_for, same_layout

aten = torch.ops.aten
DEFAULT_SHARE = 0.25
"""Of the activations at the peak. All that can be rematerialized of ResNet50 is within it."""

# op -> index of the argument of which only shape, strides and dtype are read. Checked by a test that feeds NaN.
SHAPE_ONLY = {
    aten.max_pool2d_with_indices_backward.default: 1,
    aten.avg_pool2d_backward.default: 1,
    aten._adaptive_avg_pool2d_backward.default: 1,
}


@dataclass(frozen=True)
class Rematerialize(Pass):
    """See the module's picture. Runs after the passes that change strides and before in_place."""

    name: ClassVar[str] = "rematerialize"

    live_out: frozenset[fx.Node] = frozenset()
    """Nodes whose values are read after the step: fetches, the scope."""
    share: float = DEFAULT_SHARE
    """The largest fraction of the activations at the peak, in bytes, to rematerialize; 1: all that can be."""
    min_bytes: int = 2**20
    """Smaller values are not worth a node. Symbolic sizes count as their hints, 13 samples in a batch."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConfigError(
                f"share is {self.share}; give a fraction from 0 (nothing) to 1 (all activations)"
            )

    def run(self, graph: fx.Graph) -> Report:
        if all(node.meta["role"] != "backward" for node in graph.nodes):
            return Report(0, "there is no backward")
        if self.share == 0:
            return Report(0, "the share to rematerialize is 0")
        swapped = _swap_shape_inputs(graph, self.min_bytes)
        planner = _Planner(graph, self.live_out)
        chosen, before, after = planner.choose(self.share, self.min_bytes)
        for candidate in chosen:
            _rematerialize(graph, candidate)
        mib = sum(candidate.allocation.nbytes for candidate in chosen) / 2**20
        text = f"{len(chosen)} values ({mib:,.1f} MiB) are recomputed for backward"
        text += (
            f", the peak of the step's values falls from {before / 2**20:,.1f} to {after / 2**20:,.1f} MiB"
        )
        text += f"; {swapped} pools read the shape of another value" if swapped else ""
        return Report(len(chosen) + swapped, text)


@dataclass(frozen=True)
class _Candidate:
    """An allocation that can be freed between forward and backward."""

    allocation: Allocation
    root: fx.Node
    """The value itself; other nodes of the allocation are views of it."""
    readers: tuple[fx.Node, ...]
    """The nodes of backward that read it, or a view of it; in order."""
    recipe: Recipe
    gap: slice
    """The positions where its memory would be free."""

    @property
    def sources(self) -> set[int | None]:
        return {storage(node) for node in self.recipe.sources}


class _Planner:
    """Chooses what to rematerialize, from where each storage is allocated, read and mutated."""

    def __init__(self, graph: fx.Graph, live_out: frozenset[fx.Node]) -> None:
        self.nodes = list(graph.nodes)
        self.live_out = live_out
        self.place = {node: place for place, node in enumerate(self.nodes)}
        self.allocations = {a.memory: a for a in allocations(self.nodes, list(live_out))}
        self.aliases: dict[int, list[fx.Node]] = defaultdict(list)
        self.writes: dict[int | None, list[int]] = defaultdict(list)
        for place, node in enumerate(self.nodes):
            for memory in storages(node):
                self.aliases[memory].append(node)
            for source in mutated_inputs(node):
                self.writes[storage(source)].append(place)

    def choose(self, share: float, min_bytes: int) -> tuple[list[_Candidate], int, int]:
        """What to rematerialize, and the peak before and after; greedy, the largest at the current peak first."""
        live = profile(list(self.allocations.values()), len(self.nodes))
        before = int(live.max())
        budget = share * self._activations(int(live.argmax()))
        candidates = [c for c in map(self._candidate, self.allocations.values()) if c is not None]
        remaining = sorted(
            (c for c in candidates if c.allocation.nbytes >= min_bytes), key=lambda c: -c.allocation.nbytes
        )
        chosen: list[_Candidate] = []
        freed: set[int | None] = set()
        needed: set[int | None] = set()
        while remaining:
            peak = int(live.argmax())
            candidate = next((c for c in remaining if c.gap.start <= peak < c.gap.stop), None)
            if candidate is None:
                break
            remaining.remove(candidate)
            allocation = candidate.allocation
            trial = live.copy()
            trial[candidate.gap] -= allocation.nbytes
            fits = allocation.nbytes <= budget and allocation.memory not in needed
            if fits and not candidate.sources & freed and trial.max() < live.max():
                live, budget = trial, budget - allocation.nbytes
                chosen.append(candidate)
                freed.add(allocation.memory)
                needed |= candidate.sources
        return chosen, before, int(live.max())

    def _activations(self, place: int) -> int:
        """The bytes that forward allocates and that are live at a position."""
        live = [a for a in self.allocations.values() if a.first <= place <= a.last]
        return sum(a.nbytes for a in live if a.node.meta["role"] == "forward")

    def _candidate(self, allocation: Allocation) -> _Candidate | None:
        """How the allocation can be rematerialized; None if it cannot, or need not."""
        aliases = self.aliases[allocation.memory]
        forward = [node for node in aliases if node.meta["role"] == "forward"]
        readers = dict.fromkeys(
            user for node in forward for user in node.users if user.meta["role"] != "forward"
        )
        roots = [node for node in forward if isinstance(node.meta["val"], torch.Tensor)]
        if not readers or not roots or self.writes[allocation.memory] or self.live_out & set(aliases):
            return None
        ordered = sorted(readers, key=self.place.__getitem__)
        last_forward = max(self.place[n] for node in forward for n in (node, *_forward_users(node)))
        gap = slice(last_forward + 1, self.place[ordered[0]])
        recipe = recipe_for(roots[0])
        if gap.start >= gap.stop or recipe is None or not all(map(_is_view, roots[1:])):
            return None
        if not all(self._is_available(source, self.place[roots[0]], gap.stop) for source in recipe.sources):
            return None
        return _Candidate(allocation, roots[0], tuple(ordered), recipe, gap)

    def _is_available(self, source: fx.Node, begin: int, end: int) -> bool:
        """True if the source is live at `end` anyway and is not mutated between `begin` and `end`."""
        memory = storage(source)
        if memory is None:
            return not isinstance(source.meta["val"], tuple | list)  # a size
        is_live = memory not in self.allocations or self.allocations[memory].last >= end
        return is_live and not any(begin < place < end for place in self.writes[memory])


def _forward_users(node: fx.Node) -> Iterator[fx.Node]:
    return (user for user in node.users if user.meta["role"] == "forward")


def _is_view(node: fx.Node) -> bool:
    """True if the node is a view of its first input."""
    first: Any = node.args[0] if node.args else None
    return isinstance(first, fx.Node) and node.op == "call_function" and not list(mutated_inputs(node))


def _rematerialize(graph: fx.Graph, candidate: _Candidate) -> None:
    """Recompute the value before its first reader in backward, and redirect those readers to the result."""
    copies: dict[fx.Node, fx.Node] = {}
    memory = candidate.allocation.memory
    with graph.inserting_before(candidate.readers[0]):
        copies[candidate.root] = candidate.recipe.build(graph)
        for reader in candidate.readers:
            for source in reader.all_input_nodes:
                _copy_view(graph, source, copies, memory)
    for reader in candidate.readers:
        for old, new in copies.items():
            reader.replace_input_with(old, new)
    _refresh_views(candidate.readers, memory)


def _copy_view(graph: fx.Graph, node: fx.Node, copies: dict[fx.Node, fx.Node], memory: int) -> None:
    """If the node is a view of the value, insert the same view of the recomputed value."""
    if node in copies or storage(node) != memory or node.meta["role"] != "forward":
        return
    for source in node.all_input_nodes:
        _copy_view(graph, source, copies, memory)
    view = graph.node_copy(node, lambda n: copies.get(n, n))
    view.meta = {"role": "backward", "source": node.meta.get("source")}
    view.meta["val"] = infer(view)
    copies[node] = view


def _refresh_views(readers: tuple[fx.Node, ...], memory: int) -> None:
    """Infer again the views in backward of the value, which alias the recomputed storage now."""
    todo = [node for node in readers if storage(node) == memory]
    while todo:
        node = todo.pop(0)
        node.meta["val"] = infer(node)
        todo += [user for user in node.users if storage(user) == memory]


# --- inputs of which only the shape is read -----------------------------------------------------------


def _swap_shape_inputs(graph: fx.Graph, min_bytes: int) -> int:
    """Replace inputs of which only the shape is read by values that are live anyway; returns how many."""
    shape_readers = [n for n in graph.nodes if n.target in SHAPE_ONLY and "shape_input_swapped" not in n.meta]
    if not shape_readers:
        return 0
    nodes = list(graph.nodes)
    allocation_of = {a.memory: a for a in allocations(nodes, [])}
    place = {node: number for number, node in enumerate(nodes)}
    swapped = 0
    for node in shape_readers:
        index = SHAPE_ONLY[node.target]
        source: Any = node.args[index]
        allocation = allocation_of.get(storage(source) or 0)
        if allocation is None or allocation.nbytes < min_bytes:
            continue
        if is_persistent(source) or is_persistent(allocation.node):
            continue
        others = (
            n for n in nodes[: place[source]][::-1] if _can_replace(n, source, allocation_of, place[node])
        )
        if (other := next(others, None)) is not None:
            node.update_arg(index, other)
            node.meta["shape_input_swapped"] = True
            swapped += 1
    return swapped


def _can_replace(node: fx.Node, source: fx.Node, allocation_of: dict[int, Allocation], end: int) -> bool:
    """True if the node's value has the layout of `source` and is live after `end` anyway."""
    allocation = allocation_of.get(storage(node) or 0)
    if allocation is None or allocation.memory == storage(source) or allocation.last <= end:
        return False
    return same_layout(node, source)

"""Choose which activations to recompute, by the liveness of the step's memory: checkpoints="auto".

    place         forward ──────────────┊ backward ─────────────
    x   stored    ██████████████████████┊█████████
    y   stored       ███████████████████┊████
    y   recomputed   ██                 ┊ ▒▒▒           from x, before its first reader

A local search on the peak: of the values that are stored across the peak, recompute the one that frees the most bytes
for its cost, if the peak falls; where that fails, store one of the values that were recomputed for the peak. It starts
from the program as it is, and from equal segments of which all but the boundaries are recomputed. In the end, values
are stored again that do not raise the peak. The better plan wins: that within the budget at the lowest cost; without a
budget, that with the smallest product of peak and time. Costs are estimated: bytes read and written, and the arithmetic
of products.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import fx

from argosy.engine.ir.effects import mutated_inputs, storage, storages
from argosy.engine.ir.liveness import Allocation, SizeOf, allocations, memories, profile
from argosy.engine.passes.recomputable import Forward

aten = torch.ops.aten
_FLOP_PER_BYTE = 10
"""Operations of a product in the time that one byte takes from memory, on CPUs and GPUs alike."""
_UNKNOWN_PASSES = 30
"""The cost of an op that is not known to be cheap: so many passes over its memory."""
_STEP = 3
"""The time of a step without recomputation, in those of forward."""
_MAX_SEGMENTS = 24
_MIN_SHARE = 0.001
"""Values of a smaller share of the peak are stored. A share, so that the plan is the same for every batch size."""
_PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
"""Op -> index of its first factor."""
_CHEAP = frozenset({
    "native_layer_norm", "native_group_norm", "native_batch_norm", "_softmax", "_log_softmax", "_safe_softmax",
    "max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d", "mean", "sum", "amax", "cat", "stack", "clone",
    "_to_copy", "embedding", "constant_pad_nd", "index_select", "gather", "native_dropout_backward", "bn_act",
    "add_act", "add_act_keep", "act_add", "sync_batch_norm",
})  # fmt: skip
"""Ops of a few passes over their memory, besides the pointwise ones."""


@dataclass
class Value:
    """A storage that forward allocates."""

    memory: int
    nbytes: int
    first: int
    """The position that allocates it."""
    last_forward: int
    readers: tuple[int, ...]
    """The positions from the first backward node on that read it."""
    is_candidate: bool
    cost: float = 0.0
    """Of its recomputation, in bytes of memory traffic."""
    total_cost: float = 0.0
    """With that of its sources that backward does not read itself."""
    latest: int = 0
    """It must be recomputed before this position, where one of its sources is mutated."""
    users: list[int] = field(default_factory=list)
    """The values (their indices) whose recomputation reads it."""


@dataclass(frozen=True)
class Estimate:
    """The memory of the step if some values are recomputed."""

    peak: int
    key: int
    """When the peak is reached."""
    cost: float
    """Of all recomputations."""
    needed: tuple[int, ...]
    """By value, the position before which it is recomputed."""
    ends: tuple[int, ...]
    """By value, when it is freed, or its recomputed copy."""


class RecomputeSearch:
    """The search for the values to recompute."""

    def __init__(self, forward: Forward, live_out: frozenset[fx.Node], size_of: SizeOf) -> None:
        self.forward, self._size_of = forward, size_of
        allocated = allocations(forward.nodes, list(live_out), size_of)
        self.values = self._values(allocated)
        self._width = len(self.values) + 1
        self.never = len(forward.nodes)
        candidates = {value.memory for value in self.values}
        rest = [a for a in allocated if a.memory not in candidates]
        self._rest = [(self._key(a.first), self._key(a.last), a.nbytes) for a in rest]
        external = {m: n for node in forward.nodes if node.op != "call_function" for m, n in memories(node)}
        self.persistent = sum(size_of(nbytes) for nbytes in external.values())
        """The bytes of feeds, parameters, state and constants."""
        calls = [node for node in forward.nodes[: forward.boundary] if node.op == "call_function"]
        self.forward_cost = sum(self._cost(node) for node in calls)

    def choose(self, budget: int) -> set[int]:
        """The storages to recompute; `budget`: bytes of the whole step, 0 for the smallest product of peak and time."""
        target = max(budget - self.persistent, 0)
        plans = [self._without_useless(self._search(start, target), target) for start in self._starts()]
        best = min(plans, key=lambda plan: self._score(self.estimate(plan), target))
        return {self.values[i].memory for i in best}

    def _score(self, estimate: Estimate, target: int) -> tuple[float, float]:
        if target:
            return max(estimate.peak - target, 0), estimate.cost
        return (self.persistent + estimate.peak) * (_STEP * self.forward_cost + estimate.cost), 0

    def _starts(self) -> list[set[int]]:
        """Where to search from: nothing is recomputed; all but the boundaries of some segments, as many as are best."""
        every = {i for i, value in enumerate(self.values) if value.is_candidate}
        # What backward does not read itself is not stored just because a recomputation reads it.
        unread = {i for i in every if not self.values[i].readers}
        segmented = [every - self._boundaries(count) for count in range(2, _MAX_SEGMENTS)]
        return [unread, min(segmented, key=lambda start: self.estimate(start).peak)]

    def _boundaries(self, segments: int) -> set[int]:
        """The values that forward passes from one segment to the next; segments allocate about as many bytes each."""
        sizes = np.array([value.nbytes for value in self.values], dtype=np.float64).cumsum()
        ends = np.searchsorted(sizes, sizes[-1] * np.arange(1, segments) / segments)
        places = [self.values[int(end)].first for end in ends]
        return {
            i
            for i, value in enumerate(self.values)
            if any(value.first <= place < value.last_forward for place in places)
        }

    def estimate(self, chosen: set[int]) -> Estimate:
        """What the step needs if these values (their indices) are recomputed."""
        width, count = self._width, len(self.values)
        needed, ends = [self.never] * count, [0] * count
        spans, cost = list(self._rest), 0.0
        for i in range(count - 1, -1, -1):
            value = self.values[i]
            need = value.readers[0] if value.readers else self.never
            end = self._key(value.readers[-1]) if value.readers else -1
            for j in value.users:
                if j in chosen and needed[j] < self.never:
                    need, end = min(need, needed[j]), max(end, needed[j] * width + j)
            ends[i] = end
            begin, last = self._key(value.first), self._key(value.last_forward)
            if i not in chosen:
                needed[i] = need
                spans.append((begin, max(last, end), value.nbytes))
                continue
            spans.append((begin, last, value.nbytes))
            if need < self.never:
                needed[i] = min(need, value.latest)
                spans.append((needed[i] * width + i, end, value.nbytes))
                cost += value.cost
        peak, key = _peak(spans)
        return Estimate(peak, key, cost, tuple(needed), tuple(ends))

    # --- the search -----------------------------------------------------------------------------------

    def _search(self, start: set[int], target: int) -> set[int]:
        """Lower the peak step by step, until it is the target or no step lowers it."""
        chosen = set(start)
        current = self.estimate(chosen)
        rejected: set[int] = set()
        while current.peak > target:
            index = self._best_at_peak(current, chosen, rejected)
            if index is None:
                index = self._best_to_store(current, chosen)
                if index is None:
                    break
                rejected.clear()
            trial = self.estimate(chosen ^ {index})
            if (trial.peak, trial.key) < (current.peak, current.key):
                chosen, current = chosen ^ {index}, trial
            else:
                rejected.add(index)
        return chosen

    def _best_at_peak(self, current: Estimate, chosen: set[int], rejected: set[int]) -> int | None:
        """The stored value across the peak that frees the most bytes for its cost."""
        best, best_ratio = None, 0.0
        for i, value in enumerate(self.values):
            if not value.is_candidate or i in chosen or i in rejected:
                continue
            is_across = self._key(value.last_forward) < current.key < current.needed[i] * self._width + i
            ratio = value.nbytes / (value.total_cost + 1)
            if is_across and current.ends[i] >= current.key and ratio > best_ratio:
                best, best_ratio = i, ratio
        return best

    def _best_to_store(self, current: Estimate, chosen: set[int]) -> int | None:
        """The value that is recomputed for the peak, and whose storing lowers it the most."""
        best, best_peak = None, current.peak
        for i in sorted(chosen):
            if current.needed[i] * self._width <= current.key <= current.ends[i]:
                peak = self.estimate(chosen - {i}).peak
                if peak < best_peak:
                    best, best_peak = i, peak
        return best

    def _without_useless(self, chosen: set[int], target: int) -> set[int]:
        """Store again what can be stored without a higher peak, the most expensive first."""
        allowed = max(self.estimate(chosen).peak, target)
        for i in sorted(chosen, key=lambda i: -self.values[i].cost):
            if self.estimate(chosen - {i}).peak <= allowed:
                chosen = chosen - {i}
        return chosen

    # --- the values -----------------------------------------------------------------------------------

    def _key(self, place: int) -> int:
        """The moment when the node of this position runs; values that are recomputed before it have smaller keys."""
        return place * self._width + self._width - 1

    def _values(self, allocated: Sequence[Allocation]) -> list[Value]:
        forward = self.forward
        size = {a.memory: a for a in allocated}
        min_bytes = _MIN_SHARE * profile(allocated, len(forward.nodes)).max()
        places: dict[int, list[int]] = {memory: [] for memory in forward.allocated}
        for place, node in enumerate(forward.nodes):
            for memory in {m for used in (node, *node.all_input_nodes) for m in storages(used)}:
                if memory in places:
                    places[memory].append(place)
        values = []
        for memory in forward.allocated:
            before = [p for p in places[memory] if p < forward.boundary]
            after = tuple(p for p in places[memory] if p >= forward.boundary)
            allocation = size[memory]
            if allocation.last >= len(forward.nodes):
                after = (*after, len(forward.nodes))
            is_candidate = memory in forward.recomputable and allocation.nbytes >= min_bytes
            values.append(Value(memory, allocation.nbytes, before[0], before[-1], after, is_candidate))
        index = {value.memory: i for i, value in enumerate(values)}
        for i, value in enumerate(values):
            if value.memory in forward.recomputable:
                steps = list(forward.steps(value.memory))
                value.cost = sum(map(self._cost, steps))
                value.latest = min(map(forward.first_write, steps))
                value.total_cost = value.cost
                for j in [index[memory] for memory in _read(forward, steps) if memory in index]:
                    values[j].users.append(i)
                    if values[j].is_candidate and not values[j].readers:
                        value.total_cost += values[j].total_cost
        return values

    def _cost(self, node: fx.Node) -> float:
        """The time of a node, in bytes of memory traffic."""
        if not isinstance(node.meta.get("val"), torch.Tensor | tuple | list):
            return 0.0
        sources = self.forward.sources(node)
        if storages(node) & {storage(n) for n in sources} and not list(mutated_inputs(node)):
            return 0.0  # a view
        sizes = {m: n for used in (node, *sources) for m, n in memories(used)}
        nbytes = sum(self._size_of(n) for n in sizes.values())
        if self.forward.recipe(node) is not None:
            return float(nbytes)
        name = getattr(node.target, "_opname", getattr(node.target, "__name__", ""))
        flop = self._flop(node, name)
        if flop:
            return nbytes + flop / _FLOP_PER_BYTE
        is_cheap = name in _CHEAP or torch.Tag.pointwise in getattr(node.target, "tags", ())
        is_cheap = is_cheap or name == "getitem"
        return float(nbytes if is_cheap else _UNKNOWN_PASSES * nbytes)

    def _flop(self, node: fx.Node, name: str) -> float:
        """The arithmetic operations of a product; 0 for other ops."""
        args: Any = node.args
        if name in _PRODUCTS:
            return 2.0 * self._numel(node) * self._size_of(args[_PRODUCTS[name]].meta["val"].shape[-1])
        if "conv" in name or "depthwise" in name:
            weight = args[1].meta["val"]
            return 2.0 * self._numel(node) * self._numel(args[1]) / self._size_of(weight.shape[0])
        if "attention" in name:
            return 4.0 * self._numel(args[0]) * self._size_of(args[1].meta["val"].shape[-2])
        return 0.0

    def _numel(self, node: fx.Node) -> float:
        value = node.meta["val"]
        value = value[0] if isinstance(value, tuple | list) else value
        return float(math.prod(self._size_of(size) for size in value.shape))


def _read(forward: Forward, steps: Sequence[fx.Node]) -> set[int]:
    """The storages that recomputing these nodes reads."""
    return set(_sources(forward, steps)) - {m for node in steps for m in storages(node)}


def _sources(forward: Forward, steps: Sequence[fx.Node]) -> Iterator[int]:
    for node in steps:
        for source in forward.sources(node):
            yield from storages(source)


def _peak(spans: Sequence[tuple[int, int, int]]) -> tuple[int, int]:
    """The largest number of live bytes, and when."""
    table = np.array([span for span in spans if span[1] >= span[0]], dtype=np.int64)
    if not len(table):
        return 0, 0
    keys = np.concatenate([table[:, 0], table[:, 1] + 1])
    deltas = np.concatenate([table[:, 2], -table[:, 2]])
    order = np.lexsort((deltas, keys))  # of one moment, what is freed comes first
    live = deltas[order].cumsum()
    highest = int(live.argmax())
    return int(live[highest]), int(keys[order][highest])

"""Which rows of a variable each rank stores: the plan of a bucket, and the shards of optimizer state.

A shard of a bucket is a contiguous range. It ends at a row (of dimension 0) of a gradient, so that a rank has whole
parameters and rows of at most two more. Rows are contiguous in both memory formats, contiguous and channels_last, and
they mean the same in every format: state can be saved, sliced and loaded by rows.

    bucket            w: 4 rows          b  v: 8 rows
                      ████ ████ ████ ████ ▪ ██ ██ ██ ██ ██ ██ ██ ██
    rank 0, rank 1    ───────────────────── │ ─────────────────────
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import fx

from argosy.engine.collective.sharding import rows_of
from argosy.engine.ir.program import Program

_ALIGNMENT = 64
"""Elements of a parameter that stay on one rank. Two ranks do not write to one cache line, and torch's kernels round an
element as they do in a whole parameter: they compute the rest of a division by the vector size differently."""
_SHARD = "shard"
"""In the meta of a variable's placeholder: its `Shard`, as a tuple, which is copied and saved with the program."""


@dataclass(frozen=True)
class BucketSlot:
    """The place of a gradient in a bucket."""

    first: int
    numel: int
    rows: int

    @property
    def row_size(self) -> int:
        return self.numel // self.rows if self.rows else 0


def bucket_bounds(slots: Sequence[BucketSlot], count: int, degree: int) -> list[int]:
    """The `degree` + 1 bounds of the shards of a bucket with `count` elements; each is at the beginning of a row."""
    bounds = [0]
    for number in range(1, degree):
        ideal = count * number / degree
        candidates = [row for slot in slots for row in _rows_near(slot, ideal)] + [count]
        bounds.append(max(bounds[-1], min(candidates, key=lambda row: abs(row - ideal))))
    return [*bounds, count]


def _rows_near(slot: BucketSlot, place: float) -> list[int]:
    """The beginnings of the slot's rows around a place, at multiples of `_ALIGNMENT`: at most two."""
    if not slot.row_size:
        return []
    step = _ALIGNMENT // math.gcd(_ALIGNMENT, slot.row_size)
    row = min(max(int((place - slot.first) // slot.row_size), 0), slot.rows - 1) // step * step
    return [slot.first + r * slot.row_size for r in (row, row + step) if r < slot.rows]


def row_bounds(slot: BucketSlot, bounds: Sequence[int]) -> tuple[int, ...]:
    """The bounds of the ranks' rows of one gradient."""
    if not slot.row_size:
        return (0,) * (len(bounds) - 1) + (slot.rows,)
    inner = [min(max(-(-(b - slot.first) // slot.row_size), 0), slot.rows) for b in bounds[1:-1]]
    return (0, *inner, slot.rows)


@dataclass(frozen=True)
class Shard:
    """A variable of which each rank of a sharding group stores some rows."""

    shape: tuple[int, ...]
    """The shape of the whole variable, as it is saved."""
    bounds: tuple[int, ...]
    """Rank i of the group has rows bounds[i] to bounds[i + 1] of the parameter."""
    is_count: bool = False
    """True: a step count. It is not divided; the ranks that have rows of the parameter have its value."""

    @property
    def degree(self) -> int:
        return len(self.bounds) - 1

    def rows(self, rank: int) -> tuple[int, int]:
        """The rows of a rank of the job."""
        index = rank % self.degree
        return self.bounds[index], self.bounds[index + 1]

    def of(self, whole: torch.Tensor, rank: int) -> torch.Tensor:
        """The part of a whole value that a rank stores: a view."""
        return whole if self.is_count else rows_of(whole, *self.rows(rank))

    def owners(self) -> list[int]:
        """The ranks of the first sharding group that have rows, or the value of a step count."""
        owners = [rank for rank in range(self.degree) if self.bounds[rank] < self.bounds[rank + 1]]
        return owners[:1] if self.is_count else owners


def mark(node: fx.Node, shard: Shard) -> None:
    """Record in the meta of a placeholder how its variable is sharded."""
    node.meta[_SHARD] = (shard.shape, shard.bounds, shard.is_count)


def shard_of(node: fx.Node) -> Shard | None:
    """How the variable of this placeholder is sharded; None if it is not."""
    marked = node.meta.get(_SHARD)
    return None if marked is None else Shard(tuple(marked[0]), tuple(marked[1]), bool(marked[2]))


def shards(program: Program) -> dict[str, Shard]:
    """The variables of the scope of which a rank stores only some rows."""
    placeholders = program.recorder.placeholder_of
    nodes = {name: placeholders.get(v.value) for name, v in program.persistables().items()}
    marked = {name: shard_of(node) for name, node in nodes.items() if node is not None}
    return {name: shard for name, shard in marked.items() if shard is not None}

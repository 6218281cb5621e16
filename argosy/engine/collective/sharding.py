"""Reduce-scatter of gradients and all-gather of parameters, for optimizer state that is sharded over ranks (ZeRO).

    4 ranks, degree 4       (0 1 2 3)                     a shard per rank
    4 ranks, degree 2       (0 1) (2 3)                   sharding groups; each has all shards
                            (0 2) (1 3)                   replicas: the ranks with the same shard

    one group     reduce-scatter
    replicas      reduce-scatter inside the group ─▶ all-reduce of the shard between the replicas

With shared memory a rank sums its shard directly from the buffers of the other ranks into its own buffer: no other rank
reads that part. The sum runs inside `wait`, or at the start if an all-reduce between replicas follows, which then
overlaps with computation. In both cases `wait` contains a barrier of the group. A program waits after its last backward
node, so when the wait returns, no rank of the group reads weights for its backward any more: they may be updated even
if the ranks share them.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from argosy.engine.collective.group import Group
from argosy.engine.collective.shm import FlatBuffer
from argosy.engine.collective.shm_collectives import add_in_place
from argosy.engine.collective.work import COMPLETED, AllOf, Then, Work

_CHUNK_BYTES = 1 << 22
"""While a chunk is all-reduced between the replicas, the next one is summed inside the group."""


def sharding_group(name: str, degree: int, ranks: int) -> str:
    """The name of a communicator's groups of `degree` consecutive ranks."""
    return name if degree == ranks else f"{name}/intra{degree}"


@dataclass(frozen=True)
class ShardGroups:
    """The process groups of sharded training."""

    intra: Group
    """The ranks that each have one shard."""
    inter: Group
    """The ranks that have the same shard: the replicas; this rank alone if there is one sharding group."""

    def sums_in_updates(self, buffer: FlatBuffer) -> bool:
        """True if all gradients of the sum are in shared memory that this rank can read: all ranks are on its host."""
        return buffer.segment is not None and self.intra.shm is not None and self.inter.size == 1

    def start_reduce_scatter(
        self, buffer: FlatBuffer, first: int, bounds: Sequence[int], what: str = "", sums: bool = True
    ) -> Work:
        """Start to sum a span of the flat buffers; rank i of the group gets elements bounds[i] to bounds[i + 1].

        The span begins at `first`; the sum is in the same place of `buffer.local`. Without `sums` this rank adds
        nothing up if `sums_in_updates`; the collective is the same for the others.
        """
        index = self.intra.ranks.index(self.intra.monitor.rank)
        shard = slice(bounds[index], bounds[index + 1])
        if buffer.segment is None or self.intra.shm is None:
            return self._by_sockets(buffer.local[first : first + bounds[-1]], bounds, shard, what)
        buffers = [b[first : first + bounds[-1]] for b in buffer.per_rank]
        if self.inter.size == 1:
            return self.intra.start_sum_shard(buffers, shard if sums else slice(0, 0), what)
        return self._with_replicas(buffers, index, shard, what)

    def _with_replicas(self, buffers: list[torch.Tensor], index: int, shard: slice, what: str) -> Work:
        step = _CHUNK_BYTES // buffers[0].element_size()
        starts = range(shard.start, shard.stop, step)
        self.intra.start_sum_shard(
            buffers, slice(shard.start, min(shard.start + step, shard.stop)), what
        ).wait()
        works = []
        for start in starts:
            chunk = slice(start, min(start + step, shard.stop))
            if start != shard.start:  # all gradients of the group are there since the first chunk
                add_in_place(buffers, index, chunk)
            works.append(self.inter.start_all_reduce(buffers[index][chunk], what=what))
        return Then(AllOf(works), lambda: self.intra.start_barrier(what))

    def _by_sockets(self, span: torch.Tensor, bounds: Sequence[int], shard: slice, what: str) -> Work:
        shards = [span[a:b] for a, b in pairwise(bounds)]
        owned = [(part, rank) for part, rank in zip(shards, self.intra.ranks, strict=True) if part.numel()]
        reduces = AllOf([self.intra.start_reduce(part, rank, what) for part, rank in owned])
        if self.inter.size == 1:
            return reduces
        reduces.wait()
        local = span[shard]
        return self.inter.start_all_reduce(local, what=what) if local.numel() else COMPLETED

    def start_all_gather(
        self, tensors: Sequence[torch.Tensor], bounds: Sequence[Sequence[int]], what: str = ""
    ) -> Work:
        """Start to gather the tensors, in place; rank i of the group has rows bounds[i] to bounds[i + 1] of each."""
        parts, sources = [], []
        for tensor, rows in zip(tensors, bounds, strict=True):
            for rank, a, b in zip(self.intra.ranks, rows, rows[1:], strict=False):
                if a < b:
                    parts.append(rows_of(tensor, a, b))
                    sources.append(rank)
        return self.intra.start_broadcast_coalesced(parts, sources, what)


def rows_of(tensor: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """A view of rows, along dimension 0; a number is its only row."""
    if tensor.ndim:
        return tensor[first:last]
    return tensor if first < last else tensor.reshape(1)[:0]

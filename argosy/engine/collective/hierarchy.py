"""Hierarchical all-reduce: inside blocks of ranks, usually those of a host, and between the blocks.

    sharded     reduce-scatter inside the block ─▶ all-reduce of each shard with the ranks at the same position in the
                other blocks ─▶ all-gather inside the block              every link carries a shard
    leaders     reduce to the block's first rank ─▶ all-reduce between the first ranks ─▶ broadcast inside the block
                                                                          as Paddle does it

With four ranks on each of two hosts a ring sends 1.75 times the buffer over each host's link, this sends it once.
With shared memory inside a host, the reduce-scatter is a plain sum, and the all-gather a barrier: the result is shared.
The collectives between blocks overlap with computation; those inside a block run on the cores of the ranks.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass

import torch

from argosy.engine.collective.group import Group
from argosy.engine.collective.shm import FlatBuffer
from argosy.engine.collective.work import COMPLETED, AllOf, Then, Work

_CHUNK_BYTES = 1 << 23
"""While a chunk is all-reduced between the blocks, the next one is summed inside the block."""


@dataclass(frozen=True)
class Hierarchy:
    """The two process groups of a hierarchical all-reduce."""

    intra: Group
    """The ranks of this rank's block."""
    inter: Group
    """The ranks at the same position in every block, or only the leaders."""
    by_leaders: bool

    def start(self, buffer: FlatBuffer, first: int, count: int, what: str = "") -> Work:
        """Start to sum a span of all ranks' flat buffers; the sum is in the same span of `buffer.result`."""
        if buffer.segment is not None and self.intra.shm is not None:
            return self._in_shm(buffer, first, count, what)
        span = buffer.local[first : first + count]
        return self._by_leaders(span, what) if self.by_leaders else self._sharded(span, what)

    def _in_shm(self, buffer: FlatBuffer, first: int, count: int, what: str) -> Work:
        chunk = _CHUNK_BYTES // buffer.local.element_size()
        works = [
            self._start_chunk(buffer, start, min(chunk, first + count - start), what)
            for start in range(first, first + count, chunk)
        ]
        return Then(AllOf(works), lambda: self.intra.start_barrier(what))

    def _start_chunk(self, buffer: FlatBuffer, first: int, count: int, what: str) -> Work:
        """Sum inside the block, and start the all-reduce between the blocks."""
        intra = self.intra
        assert intra.shm is not None, intra.name
        intra.start_reduce_scatter_span(buffer, first, count, what).wait()
        _, result = buffer.span(first, count)
        if self.by_leaders:
            intra.start_barrier(what).wait()
        else:
            result = result[intra.shm.shard_of(count)]
        return self.inter.start_all_reduce(result, what=what) if result.numel() else COMPLETED

    def _by_leaders(self, span: torch.Tensor, what: str) -> Work:
        leader = self.intra.ranks[0]
        self.intra.start_reduce(span, leader, what).wait()
        work = self.inter.start_all_reduce(span, what=what)
        return Then(work, lambda: self.intra.start_broadcast(span, leader, what))

    def _sharded(self, span: torch.Tensor, what: str) -> Work:
        shards = [shard for shard in span.tensor_split(self.intra.size) if shard.numel()]
        owners = list(zip(shards, self.intra.ranks, strict=False))
        AllOf([self.intra.start_reduce(shard, owner, what) for shard, owner in owners]).wait()
        local = [shard for shard, owner in owners if owner == self.intra.monitor.rank]
        work = self.inter.start_all_reduce(local[0], what=what) if local else COMPLETED
        return Then(
            work,
            lambda: AllOf([self.intra.start_broadcast(shard, owner, what) for shard, owner in owners]),
        )

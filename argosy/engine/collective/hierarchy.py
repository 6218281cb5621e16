"""Sums in two stages: inside a block of ranks, most often those of a host, and between the blocks.

    shares      each rank sums its share of the block's buffers ─▶ all-reduces it with the ranks at its place in
                the other blocks ─▶ the block puts the shares together        every link carries a part
    leaders     the block's first rank gets the sum ─▶ all-reduces it with the other blocks' first ranks ─▶ gives
                it to its block                                               Paddle's way

With four ranks on each of two hosts a ring sends 1.75 times the buffer over each host's link, this sends it once.
Inside a host with shared memory the first stage is one sum, and the last a barrier: the result is one for all.
The second stage runs beside the computation; the first and the last are work of the rank's own processor.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass

import torch

from argosy.engine.collective.flat_buffer import FlatBuffer
from argosy.engine.collective.group import Group, spans
from argosy.engine.collective.pending import DONE, AndThen, Pending, Together

_PIECE_BYTES = 1 << 23
"""While a piece is on its way across, the next one is summed inside the block."""


@dataclass(frozen=True)
class Hierarchy:
    """Two groups that sum one after the other."""

    inner: Group
    outer: Group
    """The ranks at the same place in every block, or only the leaders."""
    by_leaders: bool

    def start(self, buffer: FlatBuffer, first: int, count: int, what: str = "") -> Pending:
        """Begin to add up a part of all ranks' flat buffers; the sum is in the same part of `buffer.result`."""
        if buffer.shared is not None and self.inner.plane is not None:
            return self._through_memory(buffer, first, count, what)
        span = buffer.own[first : first + count]
        return self._by_leaders(span, what) if self.by_leaders else self._by_shares(span, what)

    def _through_memory(self, buffer: FlatBuffer, first: int, count: int, what: str) -> Pending:
        piece = _PIECE_BYTES // buffer.own.element_size()
        across = [
            self._start_piece(buffer, at, min(piece, first + count - at), what)
            for at in range(first, first + count, piece)
        ]
        return AndThen(Together(across), lambda: self.inner.start_meeting(what))

    def _start_piece(self, buffer: FlatBuffer, first: int, count: int, what: str) -> Pending:
        """Sum inside the block, and begin to sum across."""
        inner = self.inner
        assert inner.plane is not None, inner.name
        inner.start_sum_share(buffer, first, count, what).wait()
        _, mine = spans(buffer, first, count)
        if self.by_leaders:
            inner.start_meeting(what).wait()
        else:
            mine = mine[inner.plane.share_of(count)]
        return self.outer.start_all_reduce(mine, what=what) if mine.numel() else DONE

    def _by_leaders(self, span: torch.Tensor, what: str) -> Pending:
        leader = self.inner.ranks[0]
        self.inner.start_reduce(span, leader, what).wait()
        across = self.outer.start_all_reduce(span, what=what)
        return AndThen(across, lambda: self.inner.start_broadcast(span, leader, what))

    def _by_shares(self, span: torch.Tensor, what: str) -> Pending:
        shares = [share for share in span.tensor_split(self.inner.size) if share.numel()]
        owners = list(zip(shares, self.inner.ranks, strict=False))
        Together([self.inner.start_reduce(share, owner, what) for share, owner in owners]).wait()
        mine = [share for share, owner in owners if owner == self.inner.watch.rank]
        across = self.outer.start_all_reduce(mine[0], what=what) if mine else DONE
        return AndThen(
            across,
            lambda: Together([self.inner.start_broadcast(share, owner, what) for share, owner in owners]),
        )

"""Sums and updates that the ranks of a host divide among them (passes/divide_updates.py).

    begin_updates([w, v], [buffer], [0], [128], …)    all ranks have written their gradients; agree on how to update
    r = rank_gradients(buffer, p, 64)                 the gradients at element 64
    fused_momentum([w], [r], [v], …)                  updates
    end_updates([w, v], …)                            all ranks have updated
    g = sum_of_ranks(r)                               the sum of the gradients, for a fetch

If the ranks have the variables in shared memory (collective/host_memory.py), r is a RankGradient: the gradients of all
ranks, not summed. The update sums and updates this rank's shard of the variables in one pass over memory.
Otherwise begin_updates all-reduces the gradients, r is their sum, and every rank updates its own variables.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from argosy.engine.collective import FlatBuffer, trace, world
from argosy.engine.collective.group import Group
from argosy.engine.collective.host_memory import Status
from argosy.engine.collective.shm_collectives import add_up
from argosy.engine.kernels.updates import Row, have_same_layout
from argosy.engine.metrics import counters
from argosy.engine.ops.gradient_buckets import slot
from argosy.engine.ops.op_spec import OpSpec, declare

_ALIGNMENT = 64
"""A shard ends at a multiple of so many elements of a parameter: torch's kernels compute the rest of a division by the
vector size with different rounding, and two ranks do not write to one cache line."""


@dataclass(frozen=True)
class RankGradient:
    """A gradient of every rank of the host, in rank order; the update adds them up."""

    parts: tuple[Tensor, ...]
    index: int | None = None
    """The index of this rank, which updates a shard of the parameter; None: it updates all of these elements."""

    @property
    def dtype(self) -> torch.dtype:
        return self.parts[0].dtype

    def summed(self) -> Tensor:
        """The sum, as an all-reduce computes it."""
        return summed(self.parts)


def summed(parts: Sequence[Tensor]) -> Tensor:
    """The sum of tensors of one layout, in their order, in new memory; 16-bit floats are rounded once."""
    out = torch.empty_like(parts[0])
    add_up(parts, out)
    return out


def rows_of_rank(rows: Sequence[Row], index: int) -> list[Row]:
    """This rank's part of the updates: a contiguous range of the elements of all rows.

        rows      w1 |──────────|  b1 |─|  w2 |─────────────|
        rank 0       |──────────|     |─|     |──|
        rank 1                                   |──────────|      every step count is incremented on every rank

    A row whose tensors have different layouts is not cut; one rank updates it.
    """
    size = len(rows[0].summands)
    can_cut = [have_same_layout(_divided(row)) for row in rows]
    total = sum(row.tensors[0].numel() for row, cut in zip(rows, can_cut, strict=True) if cut)
    begin, end = (total * i // size for i in (index, index + 1))
    parts, offset = [], 0
    for number, (row, cut) in enumerate(zip(rows, can_cut, strict=True)):
        numel = row.tensors[0].numel()
        if cut:
            first, last = (_bound(bound - offset, numel) for bound in (begin, end))
            offset += numel
        else:
            first, last = 0, numel if number % size == index else 0
        if first < last:
            parts.append(row if last - first == numel else _cut(row, first, last))
        else:
            for count in row.steps:
                count.add_(1.0)
    return parts


def _bound(place: int, numel: int) -> int:
    return numel if place >= numel else max(place, 0) // _ALIGNMENT * _ALIGNMENT


def _divided(row: Row) -> tuple[Tensor, ...]:
    return (*row.tensors, *row.summands, *(() if row.copy is None else (row.copy,)))


def _cut(row: Row, first: int, last: int) -> Row:
    """The elements `first` to `last`, in the order of memory."""

    def cut(x: Tensor) -> Tensor:
        return x.as_strided((last - first,), (1,), x.storage_offset() + first)

    copy = None if row.copy is None else cut(row.copy)
    return row._replace(
        tensors=[cut(x) for x in row.tensors], summands=[cut(x) for x in row.summands], copy=copy
    )


def _in_shared_memory(ranks: Group, buffers: Sequence[FlatBuffer]) -> bool:
    return ranks.shm is not None and all(buffer.segment is not None for buffer in buffers)


def _begin(
    variables: Sequence[Tensor],
    buffers: Sequence[FlatBuffer],
    firsts: Sequence[int],
    counts: Sequence[int],
    group: str,
    what: str,
) -> None:
    ranks = world().group(group)
    spans = list(zip(buffers, firsts, counts, strict=True))
    if _in_shared_memory(ranks, buffers):
        statuses = world().flat_buffer("@UPDATE_STATUS@", 8, torch.int64, group, has_result=False)
        if world().host_memory.agree(ranks, statuses, variables, what) is Status.SHARED:
            # The updates read the gradients of all ranks: this rank's are sent by the barrier, without a transfer.
            nbytes = sum(count * buffer.local.itemsize for buffer, _, count in spans)
            counters.sent_bytes += nbytes
            trace.record_sum(what, group, nbytes)
            return
    else:
        world().host_memory.agreed = Status.PRIVATE
    for work in [ranks.start_all_reduce_span(*span, what) for span in spans]:
        work.wait()


def _gradients(buffer: FlatBuffer, like: Tensor, first: int, group: str) -> Tensor | RankGradient:
    ranks = world().group(group)
    if world().host_memory.agreed is Status.SHARED:
        index = ranks.ranks.index(world().rank)
        return RankGradient(tuple(slot(part, like, first) for part in buffer.per_rank), index)
    return slot(buffer.reduced(_in_shared_memory(ranks, [buffer])), like, first)


def _sum(gradient: Tensor | RankGradient) -> Tensor:
    return gradient.summed() if isinstance(gradient, RankGradient) else gradient.clone()


def _end(variables: Sequence[Tensor], group: str, what: str) -> None:
    ranks = world().group(group)
    trace.record_sum_end()
    if ranks.shm is not None:
        ranks.start_barrier(what).wait()
    world().host_memory.end()


begin_updates = declare(
    "begin_updates(Tensor(a!)[] variables, Tensor(b!)[] buffers, int[] firsts, int[] counts, str group, "
    "str what) -> ()",
    _begin,
    lambda *_: None,
)
rank_gradients = declare(
    "rank_gradients(Tensor(a) buffer, Tensor like, int first, str group) -> Tensor(a)",
    _gradients,
    lambda buffer, like, first, group: slot(buffer, like, first),
)
sum_of_ranks = declare("sum_of_ranks(Tensor gradient) -> Tensor", _sum, torch.empty_like)
end_updates = declare("end_updates(Tensor(a!)[] variables, str group, str what) -> ()", _end, lambda *_: None)
SPECS = (
    OpSpec(begin_updates, _begin, is_collective=True),
    OpSpec(rank_gradients, _gradients),
    OpSpec(sum_of_ranks, _sum),
    OpSpec(end_updates, _end, is_collective=True),
)

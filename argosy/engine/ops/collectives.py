"""Collectives on tensors of a program: all_reduce, reduce, broadcast, gather_rows.

    started = all_reduce(g)               overlaps with the following nodes
    sum     = wait(started)               the same memory, now with the sum

In a program both values are tensors that alias g. At run time the first is an AsyncCollective.
all_reduce_fused does the same for `count` elements of a flat buffer (gradient_buckets.py), all_reduce_hierarchical
for an all-reduce in two stages, inside blocks of ranks and between them (collective/hierarchy.py). Their result is
read-only: the ranks of a host may share it.

    started = reduce(g, 1, …)             the sum on one rank only
    sum     = wait(started)               on rank 1 the memory of g, now with the sum; on the others undefined
    momentum(w, sum, v, …)                on rank 1
    updated_by_owner([w, v], [sum], 1)    on the others, instead of the update

updated_by_owner computes nothing. It declares which variables of the scope another rank updates, and it uses the sum:
without a user the reduce would be dead code, and this rank would not take part in it.

broadcast gives every rank the tensor of one of them, in place; broadcast_fused does so for several tensors, each with
its own source rank, with one message per source.

    rank 0   rows [2, D], ids [2] ─┐
    rank 1   rows [0, D], ids [0] ─┼─▶ gather_rows: rows [5, D], ids [5] on every rank, in the order of the ranks
    rank 2   rows [3, D], ids [3] ─┘

Paddle's ops are `c_allreduce_sum`, `c_reduce_sum` and `c_broadcast`.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from argosy.engine.collective import FlatBuffer, Work, world
from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import as_many_sources, rows_of_ids, span_fits


@dataclass(frozen=True)
class AsyncCollective:
    """A collective in flight, and the tensor that will hold its result."""

    tensor: Tensor
    work: Work


def _all_reduce(x: Tensor, group: str, what: str) -> AsyncCollective:
    return AsyncCollective(x, world().group(group).start_all_reduce(x, what=what))


def _all_reduce_fused(buffer: FlatBuffer, first: int, count: int, group: str, what: str) -> AsyncCollective:
    ranks = world().group(group)
    work = ranks.start_all_reduce_span(buffer, first, count, what)
    return AsyncCollective(buffer.reduced(in_shm=ranks.shm is not None)[first : first + count], work)


def _all_reduce_hierarchical(
    buffer: FlatBuffer, first: int, count: int, group: str, block: int, by_leaders: bool, what: str
) -> AsyncCollective:
    hierarchy = world().hierarchy(group, block, by_leaders)
    work = hierarchy.start(buffer, first, count, what)
    return AsyncCollective(
        buffer.reduced(in_shm=hierarchy.intra.shm is not None)[first : first + count], work
    )


def _wait(started: AsyncCollective) -> Tensor:
    started.work.wait()
    return started.tensor


def _reduce(x: Tensor, root: int, group: str, what: str) -> AsyncCollective:
    return AsyncCollective(x, world().group(group).start_reduce(x, root, what))


def _no_update(states: Sequence[Tensor], gradients: Sequence[Tensor], owner: int) -> None:
    pass


def _broadcast(x: Tensor, source: int, group: str, what: str) -> Tensor:
    return world().group(group).broadcast(x, source, what)


def _broadcast_fused(xs: Sequence[Tensor], sources: Sequence[int], group: str, what: str) -> None:
    world().group(group).start_broadcast_coalesced(xs, sources, what).wait()


def _gather_rows(rows: Tensor, ids: Tensor, group: str) -> tuple[Tensor, Tensor]:
    """`rows` is [*ids.shape, D]; returns rows [n, D] and ids [n] of all ranks."""
    ranks = world().group(group)
    flat = rows.reshape(ids.numel(), rows.shape[-1])  # not -1, which is ambiguous for an empty tensor
    all_rows = ranks.all_gather_rows(flat, what="gather_rows (values)")
    return all_rows, ranks.all_gather_rows(ids.reshape(-1), what="gather_rows (ids)")


def _same(x: Tensor, *_: Any) -> Tensor:
    return x


def _span(buffer: Tensor, first: int, count: int, *_: Any) -> Tensor:
    return buffer.new_empty(count)


def _rows(rows: Tensor, ids: Tensor, group: str) -> tuple[Tensor, Tensor]:
    total = torch.library.get_ctx().new_dynamic_size()  # the sum over the ranks, known at run time
    return rows.new_empty((total, rows.shape[-1])), ids.new_empty((total,))


all_reduce = declare("all_reduce(Tensor(a!) x, str group, str what) -> Tensor(a!)", _all_reduce, _same)
all_reduce_fused = declare(
    "all_reduce_fused(Tensor(a!) buffer, int first, int count, str group, str what) -> Tensor",
    _all_reduce_fused,
    _span,
)
all_reduce_hierarchical = declare(
    "all_reduce_hierarchical(Tensor(a!) buffer, int first, int count, str group, int block, bool by_leaders, "
    "str what) -> Tensor",
    _all_reduce_hierarchical,
    _span,
)
wait = declare("wait(Tensor(a!) x) -> Tensor(a!)", _wait, _same)
reduce = declare("reduce(Tensor(a!) x, int root, str group, str what) -> Tensor(a!)", _reduce, _same)
updated_by_owner = declare(
    "updated_by_owner(Tensor(a!)[] states, Tensor[] gradients, int owner) -> ()", _no_update, _no_update
)
broadcast = declare(
    "broadcast(Tensor(a!) x, int source, str group, str what) -> Tensor(a!)", _broadcast, _same
)
broadcast_fused = declare(
    "broadcast_fused(Tensor(a!)[] xs, int[] sources, str group, str what) -> ()",
    _broadcast_fused,
    lambda *args: None,
)
gather_rows = declare(
    "gather_rows(Tensor rows, Tensor ids, str group) -> (Tensor, Tensor)", _gather_rows, _rows
)
_SHARED: dict[str, Any] = {"is_collective": True, "persistent": True, "verify": span_fits}
SPECS = (
    OpSpec(all_reduce, _all_reduce, is_collective=True),
    OpSpec(all_reduce_fused, _all_reduce_fused, **_SHARED),
    OpSpec(all_reduce_hierarchical, _all_reduce_hierarchical, **_SHARED),
    OpSpec(wait, _wait),
    OpSpec(reduce, _reduce, is_collective=True),
    OpSpec(updated_by_owner, _no_update),
    OpSpec(broadcast, _broadcast, is_collective=True),
    OpSpec(broadcast_fused, _broadcast_fused, is_collective=True, verify=as_many_sources),
    OpSpec(gather_rows, _gather_rows, is_collective=True, verify=rows_of_ids),
)

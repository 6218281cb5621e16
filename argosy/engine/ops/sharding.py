"""Ops of sharded training: each rank of a group sums and updates a shard of every bucket.

    started = reduce_scatter(buffer, 0, [0, 60, 128], 'dp', 2, …)      overlaps with the following nodes
    sum     = wait(started)                          this rank's shard, elements 0 to 60 on rank 0, holds the sum
    r       = shard_rows(bucket_view(sum, p, 0), 0, 3)                 rows of a gradient, a parameter, …: a view
    momentum(shard_rows(w, 0, 3), r, velocity, …)                      velocity has these rows only
    r       = shard_gradient(buffer, sum, p, 0, 0, 3, 'dp', 2)         instead, after reduce_scatter(…, sums=False):
                                                                       the rows of all ranks; the update adds them up
    all_gather_shards([w], [sum], [0, 3, 8], 'dp', 2, True, True, …)   starts to give every rank all rows of w
    await_gathers([w])                                                 now every rank has them

Between hosts an all-gather overlaps with the next forward (collective/pending_gathers.py): the recorded program has no
await_gathers, the compiled step has them before its first readers of the parameters (runtime/gathers.py).
Parameters that the ranks of the group have in shared memory (runtime/shared_weights.py) need no all-gather; the op is a
barrier for them if it ends the step. It uses the sum, so that a rank without rows takes part in the reduce-scatter.
Paddle's ops are `c_reduce_scatter` and `c_allgather`.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, dtype, empty

from argosy.engine.collective import FlatBuffer, world
from argosy.engine.collective.sharding import rows_of
from argosy.engine.ops.collectives import AsyncCollective
from argosy.engine.ops.gradient_buckets import slot
from argosy.engine.ops.host_updates import RankGradient
from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import bounds_fit, rows_fit


def _buffer(numel: int, dtype: dtype, group: str, name: str) -> FlatBuffer:
    return world().flat_buffer(name, numel, dtype, group, has_result=False)


def _fake_buffer(numel: int, dtype: dtype, group: str, name: str) -> Tensor:
    return empty(numel, dtype=dtype)


def _start(
    buffer: FlatBuffer,
    first: int,
    bounds: Sequence[int],
    group: str,
    degree: int,
    what: str,
    sums: bool = True,
) -> AsyncCollective:
    groups = world().shard_groups(group, degree)
    work = groups.start_reduce_scatter(buffer, first, bounds, what, sums)
    return AsyncCollective(buffer.local[first : first + bounds[-1]], work)


def _fake_start(buffer: Tensor, first: int, bounds: Sequence[int], *_: Any, **__: Any) -> Tensor:
    return buffer.new_empty(bounds[-1])


def _gradient(
    buffer: FlatBuffer, total: Tensor, like: Tensor, first: int, row: int, end: int, group: str, degree: int
) -> Tensor | RankGradient:
    if world().shard_groups(group, degree).sums_in_updates(buffer):
        return RankGradient(tuple(rows_of(slot(part, like, first), row, end) for part in buffer.per_rank))
    return rows_of(slot(buffer.local, like, first), row, end)


def _fake_gradient(
    buffer: Tensor, total: Tensor, like: Tensor, first: int, row: int, end: int, *_: Any
) -> Tensor:
    return rows_of(slot(buffer, like, first), row, end)


def _gather(
    params: Sequence[Tensor],
    sums: Sequence[Tensor],
    rows: Sequence[int],
    group: str,
    degree: int,
    shares_weights: bool,
    ends_step: bool,
    what: str,
) -> None:
    groups, shared = world().shard_groups(group, degree), world().shared_weights
    bounds = [rows[i : i + degree + 1] for i in range(0, len(rows), degree + 1)]
    private = [(p, b) for p, b in zip(params, bounds, strict=True) if p not in shared]
    if private:
        tensors, rows_of_ranks = zip(*private, strict=True)
        work = groups.start_all_gather(tensors, rows_of_ranks, what)
        if groups.intra.shm is None:
            world().gathers.add(tensors, work)
        else:  # a collective through shared memory runs inside `wait`, at the same place on all ranks
            work.wait()
    if ends_step and groups.intra.shm is not None:
        groups.intra.start_barrier(what).wait()


def _await(params: Sequence[Tensor]) -> None:
    world().gathers.wait_for(params)


def _squares(rows: Sequence[Tensor], places: Sequence[int], count: int) -> Tensor:
    squares = torch.zeros(count, dtype=torch.float64)
    if rows:
        norms = torch.stack([torch.linalg.vector_norm(r, dtype=torch.float64) for r in rows])
        squares[list(places)] = norms.square()
    return squares


def _fake_squares(rows: Sequence[Tensor], places: Sequence[int], count: int) -> Tensor:
    return empty(count, dtype=torch.float64)


shard_buffer = declare(
    "shard_buffer(int numel, ScalarType dtype, str group, str name) -> Tensor", _buffer, _fake_buffer
)
reduce_scatter = declare(
    "reduce_scatter(Tensor(a!) buffer, int first, int[] bounds, str group, int degree, str what, *, "
    "bool sums=True) -> Tensor",
    _start,
    _fake_start,
)
shard_rows = declare("shard_rows(Tensor(a) x, int first, int last) -> Tensor(a)", rows_of, rows_of)
shard_gradient = declare(
    "shard_gradient(Tensor(a) buffer, Tensor sum, Tensor like, int first, int row, int end, str group, int degree) "
    "-> Tensor(a)",
    _gradient,
    _fake_gradient,
)
all_gather_shards = declare(
    "all_gather_shards(Tensor(a!)[] params, Tensor[] sums, int[] rows, str group, int degree, bool shares_weights, "
    "bool ends_step, str what) -> ()",
    _gather,
    lambda *_: None,
)
await_gathers = declare("await_gathers(Tensor[] params) -> ()", _await, lambda *_: None)
shard_squares = declare(
    "shard_squares(Tensor[] rows, int[] places, int count) -> Tensor", _squares, _fake_squares
)
SPECS = (
    OpSpec(shard_buffer, _buffer, is_collective=True, persistent=True),
    OpSpec(reduce_scatter, _start, is_collective=True, persistent=True, verify=bounds_fit),
    OpSpec(shard_rows, rows_of, verify=rows_fit),
    OpSpec(shard_gradient, _gradient),
    OpSpec(all_gather_shards, _gather, is_collective=True),
    OpSpec(await_gathers, _await, has_side_effects=True),
    OpSpec(shard_squares, _squares),
)

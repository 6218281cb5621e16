"""Ops of sharded training: each rank of a group sums and updates a shard of every bucket.

    started = reduce_scatter(buffer, 0, [0, 60, 128], 'dp', 2, …)      overlaps with the following nodes
    sum     = wait(started)                          this rank's shard, elements 0 to 60 on rank 0, holds the sum
    r       = shard_rows(bucket_view(sum, p, 0), 0, 3)                 rows of a gradient, a parameter, …: a view
    momentum(shard_rows(w, 0, 3), r, velocity, …)                      velocity has these rows only
    all_gather_shards([w], [sum], [0, 3, 8], 'dp', 2, True, True, …)   now every rank has all rows of w

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
from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import bounds_fit, rows_fit


def _buffer(numel: int, dtype: dtype, group: str, name: str) -> FlatBuffer:
    return world().flat_buffer(name, numel, dtype, group, has_result=False)


def _fake_buffer(numel: int, dtype: dtype, group: str, name: str) -> Tensor:
    return empty(numel, dtype=dtype)


def _start(
    buffer: FlatBuffer, first: int, bounds: Sequence[int], group: str, degree: int, what: str
) -> AsyncCollective:
    work = world().shard_groups(group, degree).start_reduce_scatter(buffer, first, bounds, what)
    return AsyncCollective(buffer.local[first : first + bounds[-1]], work)


def _fake_start(buffer: Tensor, first: int, bounds: Sequence[int], *_: Any) -> Tensor:
    return buffer.new_empty(bounds[-1])


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
        tensors, kept = zip(*private, strict=True)
        groups.start_all_gather(tensors, kept, what).wait()
    if ends_step and groups.intra.shm is not None:
        groups.intra.start_barrier(what).wait()


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
    "reduce_scatter(Tensor(a!) buffer, int first, int[] bounds, str group, int degree, str what) -> Tensor",
    _start,
    _fake_start,
)
shard_rows = declare("shard_rows(Tensor(a) x, int first, int last) -> Tensor(a)", rows_of, rows_of)
all_gather_shards = declare(
    "all_gather_shards(Tensor(a!)[] params, Tensor[] sums, int[] rows, str group, int degree, bool shares_weights, "
    "bool ends_step, str what) -> ()",
    _gather,
    lambda *_: None,
)
shard_squares = declare(
    "shard_squares(Tensor[] rows, int[] places, int count) -> Tensor", _squares, _fake_squares
)
SPECS = (
    OpSpec(shard_buffer, _buffer, is_collective=True, persistent=True),
    OpSpec(reduce_scatter, _start, is_collective=True, persistent=True, verify=bounds_fit),
    OpSpec(shard_rows, rows_of, verify=rows_fit),
    OpSpec(all_gather_shards, _gather, is_collective=True),
    OpSpec(shard_squares, _squares),
)

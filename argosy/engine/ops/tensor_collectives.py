"""Collectives that a script calls on a variable: reduce_value, gather_values, broadcast_value, barrier.

    sum   = reduce_value(x, "sum", 'dp', …)       of x on all ranks; also "max", "min", "prod"
    parts = gather_values(x, 'dp', …)             [ranks, *x.shape], in the order of the ranks
    same  = broadcast_value(x, 0, 'dp', …)        the x of rank 0
    barrier('dp', …)

Each blocks until all ranks have joined, and leaves x as it is. They are live without users: a rank that does not use
the result takes part in the collective. Paddle's ops are `c_allreduce_sum`, `c_allgather`, `c_broadcast` and `barrier`.
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
from torch import Tensor

from argosy.engine.collective import world
from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import one_of

REDUCTIONS = ("sum", "max", "min", "prod")


def _reduce(x: Tensor, op: str, group: str, what: str) -> Tensor:
    ranks = world().group(group)
    if op == "prod":
        return torch.stack(ranks.all_gather(x, what)).prod(0).to(x.dtype)
    return ranks.all_reduce(x.contiguous().clone(), op, what)


def _gather(x: Tensor, group: str, what: str) -> Tensor:
    return torch.stack(world().group(group).all_gather(x, what))


def _broadcast(x: Tensor, source: int, group: str, what: str) -> Tensor:
    return world().group(group).broadcast(x.contiguous().clone(), source, what)


def _barrier(group: str, what: str) -> None:
    world().group(group).barrier(what)


def _like(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


def _of_all_ranks(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty((world().size, *x.shape))


reduce_value = declare("reduce_value(Tensor x, str op, str group, str what) -> Tensor", _reduce, _like)
gather_values = declare("gather_values(Tensor x, str group, str what) -> Tensor", _gather, _of_all_ranks)
broadcast_value = declare(
    "broadcast_value(Tensor x, int source, str group, str what) -> Tensor", _broadcast, _like
)
barrier = declare("barrier(str group, str what) -> ()", _barrier, lambda *args: None)
_SHARED: dict[str, Any] = {"is_collective": True, "has_side_effects": True}
SPECS = (
    OpSpec(reduce_value, _reduce, verify=one_of("op", REDUCTIONS), **_SHARED),
    OpSpec(gather_values, _gather, **_SHARED),
    OpSpec(broadcast_value, _broadcast, **_SHARED),
    OpSpec(barrier, _barrier, **_SHARED),
)

"""all_reduce: begin to add a tensor up over the ranks of a group, in place; wait: go on when it is there.

    started = all_reduce(g)      the exchange runs beside what follows
    sum     = wait(started)      the same memory, now with the sum

In a program both values are tensors in g's memory. At run time the first is the pending exchange.
all_reduce_fused begins the same for `count` elements of a flat buffer (flat_gradients.py), and
all_reduce_hierarchical for a sum in two stages, inside blocks of ranks and between them (collective/hierarchy.py).
Their result is read-only: the ranks of a host may have one in common.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from argosy.engine.collective import FlatBuffer, Pending, world
from argosy.engine.ops.spec import OpSpec, declare


@dataclass(frozen=True)
class Started:
    """A collective under way, and the tensor that will hold its result."""

    tensor: Tensor
    pending: Pending


def _start(x: Tensor, group: str, what: str) -> Started:
    return Started(x, world().group(group).start_all_reduce(x, what=what))


def _start_span(buffer: FlatBuffer, first: int, count: int, group: str, what: str) -> Started:
    chosen = world().group(group)
    pending = chosen.start_all_reduce_span(buffer, first, count, what)
    return Started(buffer.sum_of(chosen.plane)[first : first + count], pending)


def _start_hierarchical(
    buffer: FlatBuffer, first: int, count: int, group: str, block: int, by_leaders: bool, what: str
) -> Started:
    chosen = world().hierarchy(group, block, by_leaders)
    pending = chosen.start(buffer, first, count, what)
    return Started(buffer.sum_of(chosen.inner.plane)[first : first + count], pending)


def _wait(started: Started) -> Tensor:
    started.pending.wait()
    return started.tensor


def _same(x: Tensor, *_: Any) -> Tensor:
    return x


def _span(buffer: Tensor, first: int, count: int, *_: Any) -> Tensor:
    return buffer.new_empty(count)


all_reduce = declare("all_reduce(Tensor(a!) x, str group, str what) -> Tensor(a!)", _start, _same)
all_reduce_fused = declare(
    "all_reduce_fused(Tensor(a!) buffer, int first, int count, str group, str what) -> Tensor",
    _start_span,
    _span,
)
all_reduce_hierarchical = declare(
    "all_reduce_hierarchical(Tensor(a!) buffer, int first, int count, str group, int block, bool by_leaders, "
    "str what) -> Tensor",
    _start_hierarchical,
    _span,
)
wait = declare("wait(Tensor(a!) x) -> Tensor(a!)", _wait, _same)
SPEC = OpSpec(all_reduce, _start, "c_allreduce_sum", communicates=True)
FUSED_SPEC = OpSpec(all_reduce_fused, _start_span, "c_fused_allreduce_sum", communicates=True, lasting=True)
HIERARCHICAL_SPEC = OpSpec(
    all_reduce_hierarchical,
    _start_hierarchical,
    "c_hierarchical_allreduce_sum",
    communicates=True,
    lasting=True,
)
WAIT_SPEC = OpSpec(wait, _wait, "c_sync_comm_stream")

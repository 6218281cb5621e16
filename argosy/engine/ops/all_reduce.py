"""all_reduce: start summing a tensor over the ranks of a process group, in place; wait: block until it is done.

    started = all_reduce(g)      overlaps with the following nodes
    sum     = wait(started)      the same memory, now with the sum

In a program both values are tensors that alias g. At run time the first is an AsyncCollective.
all_reduce_fused does the same for `count` elements of a flat buffer (gradient_buckets.py), all_reduce_hierarchical
for an all-reduce in two stages, inside blocks of ranks and between them (collective/hierarchy.py). Their result is
read-only: the ranks of a host may share it. Paddle's op is `c_allreduce_sum`.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from argosy.engine.collective import FlatBuffer, Work, world
from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import span_fits


@dataclass(frozen=True)
class AsyncCollective:
    """A collective in flight, and the tensor that will hold its result."""

    tensor: Tensor
    work: Work


def _start(x: Tensor, group: str, what: str) -> AsyncCollective:
    return AsyncCollective(x, world().group(group).start_all_reduce(x, what=what))


def _start_span(buffer: FlatBuffer, first: int, count: int, group: str, what: str) -> AsyncCollective:
    ranks = world().group(group)
    work = ranks.start_all_reduce_span(buffer, first, count, what)
    return AsyncCollective(buffer.reduced(in_shm=ranks.shm is not None)[first : first + count], work)


def _start_hierarchical(
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
SPEC = OpSpec(all_reduce, _start, is_collective=True)
FUSED_SPEC = OpSpec(all_reduce_fused, _start_span, is_collective=True, persistent=True, verify=span_fits)
HIERARCHICAL_SPEC = OpSpec(
    all_reduce_hierarchical,
    _start_hierarchical,
    is_collective=True,
    persistent=True,
    verify=span_fits,
)
WAIT_SPEC = OpSpec(wait, _wait)

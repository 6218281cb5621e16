"""all_reduce: begin to add a tensor up over the ranks of a group, in place; wait: go on when it is there.

    started = all_reduce(g)      the exchange runs beside what follows
    sum     = wait(started)      the same memory, now with the sum

In a program both values are tensors in g's memory. At run time the first is the pending exchange.
all_reduce_fused begins the same for several tensors at once; its items are waited for one by one.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from argosy.engine.collective import Pending, world
from argosy.engine.ops.spec import OpSpec, declare


@dataclass(frozen=True)
class Started:
    """A collective under way, and the tensor that will hold its result."""

    tensor: Tensor
    pending: Pending


def _start(x: Tensor, group: str, what: str) -> Started:
    return Started(x, world().group(group).start_all_reduce(x, what=what))


def _start_all(xs: Sequence[Tensor], group: str, what: str) -> list[Started]:
    pending = world().group(group).start_all_reduce_of(xs, what=what)
    return [Started(x, pending) for x in xs]


def _wait(started: Started) -> Tensor:
    started.pending.wait()
    return started.tensor


def _same(x: Tensor, *_: Any) -> Tensor:
    return x


def _same_all(xs: Sequence[Tensor], *_: Any) -> list[Tensor]:
    return list(xs)


def bytes_sent(x: Tensor, ranks: int) -> int:
    """A ring passes every element twice, less the share that a rank keeps."""
    return 2 * x.nbytes * (ranks - 1) // ranks


all_reduce = declare("all_reduce(Tensor(a!) x, str group, str what) -> Tensor(a!)", _start, _same)
all_reduce_fused = declare(
    "all_reduce_fused(Tensor(a!)[] xs, str group, str what) -> Tensor(a!)[]", _start_all, _same_all
)
wait = declare("wait(Tensor(a!) x) -> Tensor(a!)", _wait, _same)
SPEC = OpSpec(all_reduce, _start, "c_allreduce_sum", communicates=True)
FUSED_SPEC = OpSpec(all_reduce_fused, _start_all, "c_fused_allreduce_sum", communicates=True)
WAIT_SPEC = OpSpec(wait, _wait, "c_sync_comm_stream")

"""reduce: start summing a tensor over the ranks of a process group to one of them; updated_by_owner: on the others.

    started = reduce(g, 1, …)             overlaps with the following nodes
    sum     = wait(started)               on rank 1 the memory of g, now with the sum; on the others undefined
    momentum(w, sum, v, …)                on rank 1
    updated_by_owner([w, v], [sum], 1)    on the others, instead of the update

updated_by_owner computes nothing. It declares which variables of the scope another rank updates, and it uses the sum:
without a user the reduce would be dead code, and this rank would not take part in it. Paddle's op is `c_reduce_sum`.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from torch import Tensor

from argosy.engine.collective import world
from argosy.engine.ops.all_reduce import AsyncCollective
from argosy.engine.ops.op_spec import OpSpec, declare


def _start(x: Tensor, root: int, group: str, what: str) -> AsyncCollective:
    return AsyncCollective(x, world().group(group).start_reduce(x, root, what))


def _fake(x: Tensor, root: int, group: str, what: str) -> Tensor:
    return x


def _no_update(states: Sequence[Tensor], gradients: Sequence[Tensor], owner: int) -> None:
    pass


reduce = declare("reduce(Tensor(a!) x, int root, str group, str what) -> Tensor(a!)", _start, _fake)
updated_by_owner = declare(
    "updated_by_owner(Tensor(a!)[] states, Tensor[] gradients, int owner) -> ()", _no_update, _no_update
)
SPEC = OpSpec(reduce, _start, is_collective=True)
UPDATED_BY_OWNER_SPEC = OpSpec(updated_by_owner, _no_update)

"""reduce: begin to add a tensor up over the ranks of a group, on one of them; leave_to_owner: what the others do.

    started = reduce(g, 1, …)             the exchange runs beside what follows
    sum     = wait(started)               on rank 1 g's memory, now with the sum; on the others it is lost
    momentum(w, sum, v, …)                on rank 1
    leave_to_owner([w, v], [sum], 1)      on the others, in the place of the update

leave_to_owner computes nothing. It says which variables of the scope another rank changes, and that the sum was
sent for it: without a reader, nobody would take part in the exchange.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from torch import Tensor

from argosy.engine.collective import world
from argosy.engine.ops.all_reduce import Started
from argosy.engine.ops.spec import OpSpec, declare


def _start(x: Tensor, root: int, group: str, what: str) -> Started:
    return Started(x, world().group(group).start_reduce(x, root, what))


def _fake(x: Tensor, root: int, group: str, what: str) -> Tensor:
    return x


def _leave(states: Sequence[Tensor], gradients: Sequence[Tensor], owner: int) -> None:
    pass


reduce = declare("reduce(Tensor(a!) x, int root, str group, str what) -> Tensor(a!)", _start, _fake)
leave_to_owner = declare(
    "leave_to_owner(Tensor(a!)[] states, Tensor[] gradients, int owner) -> ()", _leave, _leave
)
SPEC = OpSpec(reduce, _start, "c_reduce_sum", communicates=True)
LEAVE_SPEC = OpSpec(leave_to_owner, _leave, "nop")

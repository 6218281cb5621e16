"""broadcast: give every rank of a group the tensor of one of them, in place."""

# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from argosy.engine.collective import world
from argosy.engine.ops.spec import OpSpec, declare


def _kernel(x: Tensor, source: int, group: str, what: str) -> Tensor:
    return world().group(group).broadcast(x, source, what)


def _fake(x: Tensor, source: int, group: str, what: str) -> Tensor:
    return x


broadcast = declare("broadcast(Tensor(a!) x, int source, str group, str what) -> Tensor(a!)", _kernel, _fake)
SPEC = OpSpec(broadcast, _kernel, "c_broadcast", communicates=True)

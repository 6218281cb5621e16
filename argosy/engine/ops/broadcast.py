"""broadcast: give every rank of a group the tensor of one of them, in place.

broadcast_fused does it for several tensors, each with its own source, in one exchange: one message for each source.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from torch import Tensor

from argosy.engine.collective import world
from argosy.engine.ops.spec import OpSpec, declare


def _kernel(x: Tensor, source: int, group: str, what: str) -> Tensor:
    return world().group(group).broadcast(x, source, what)


def _fake(x: Tensor, source: int, group: str, what: str) -> Tensor:
    return x


def _fused(xs: Sequence[Tensor], sources: Sequence[int], group: str, what: str) -> None:
    world().group(group).start_broadcast_of(xs, sources, what).wait()


broadcast = declare("broadcast(Tensor(a!) x, int source, str group, str what) -> Tensor(a!)", _kernel, _fake)
broadcast_fused = declare(
    "broadcast_fused(Tensor(a!)[] xs, int[] sources, str group, str what) -> ()", _fused, lambda *_: None
)
SPEC = OpSpec(broadcast, _kernel, "c_broadcast", communicates=True)
FUSED_SPEC = OpSpec(broadcast_fused, _fused, "fused_broadcast", communicates=True)

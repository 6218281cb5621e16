"""broadcast: copy the tensor of one rank to all ranks of a process group, in place.

broadcast_fused does so for several tensors, each with its own source rank, with one message per source. Paddle's op is
`c_broadcast`.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from torch import Tensor

from argosy.engine.collective import world
from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import as_many_sources


def _kernel(x: Tensor, source: int, group: str, what: str) -> Tensor:
    return world().group(group).broadcast(x, source, what)


def _fake(x: Tensor, source: int, group: str, what: str) -> Tensor:
    return x


def _fused(xs: Sequence[Tensor], sources: Sequence[int], group: str, what: str) -> None:
    world().group(group).start_broadcast_coalesced(xs, sources, what).wait()


broadcast = declare("broadcast(Tensor(a!) x, int source, str group, str what) -> Tensor(a!)", _kernel, _fake)
broadcast_fused = declare(
    "broadcast_fused(Tensor(a!)[] xs, int[] sources, str group, str what) -> ()", _fused, lambda *_: None
)
SPEC = OpSpec(broadcast, _kernel, is_collective=True)
FUSED_SPEC = OpSpec(broadcast_fused, _fused, is_collective=True, verify=as_many_sources)

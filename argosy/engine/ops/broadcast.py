"""broadcast: give every rank of a group the tensor of one of them, in place."""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.collective import world
from argosy.engine.ops.spec import OpSpec, declare


def _kernel(x: Tensor, source: int, group: str, what: str) -> Tensor:
    world().group(group).broadcast(_bytes(x), source, what)
    return x


def _bytes(x: Tensor) -> Tensor:
    """The same memory as bytes: Gloo knows neither bool, as masks are, nor complex numbers."""
    if not torch.ops.aten.is_non_overlapping_and_dense.default(x):
        return x  # the group says what is wrong with it
    return x.as_strided((x.numel(),), (1,)).view(torch.uint8)


def _fake(x: Tensor, source: int, group: str, what: str) -> Tensor:
    return x


broadcast = declare("broadcast(Tensor(a!) x, int source, str group, str what) -> Tensor(a!)", _kernel, _fake)
SPEC = OpSpec(broadcast, _kernel, "c_broadcast", communicates=True)

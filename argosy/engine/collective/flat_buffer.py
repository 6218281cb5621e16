"""The flat buffer in which a rank's gradients lie one behind the other, and the place of their sums.

    host plane    own of rank 0   ┐
                  own of rank 1   ├─ one segment: every rank reads all of it, and writes its share of the result
                  result          ┘
    sockets       own = result    the backend sums in place

With the host plane the result is one for all ranks of the host. It is read-only for whoever asked for the sum.
"""

# SPDX-License-Identifier: Apache-2.0
import torch

from argosy.engine.collective.host_plane import HostPlane
from argosy.engine.collective.sharing import Shared

_PAGE = 4096


class FlatBuffer:
    """Memory for `numel` elements of each rank."""

    def __init__(self, numel: int, dtype: torch.dtype, device: torch.device, shared: Shared | None) -> None:
        self.shared = shared
        if shared is None:
            self.own = self.result = torch.zeros(numel, dtype=dtype, device=device)
            self.parts = [self.own]
            return
        area = area_bytes(numel, dtype)
        *self.parts, self.result = (
            torch.frombuffer(shared.memory, dtype=dtype, count=numel, offset=place * area)
            for place in range(len(shared.pids) + 1)
        )
        self.own = self.parts[shared.index]

    def sum_of(self, plane: HostPlane | None) -> torch.Tensor:
        """Where the sum lies: a group without a plane sums in place, be the buffer shared or not."""
        return self.own if plane is None else self.result


def area_bytes(numel: int, dtype: torch.dtype) -> int:
    """What one rank's buffer takes, in whole pages."""
    return -(-numel * dtype.itemsize // _PAGE) * _PAGE

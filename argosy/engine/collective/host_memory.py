"""Variables that the ranks of a host have once, in memory that all of them map: agree on it in every step, and leave it.

    status of a rank    SHARED     all variables that the step updates are in the shared memory
                        READY      they are not, and may be moved there after the step
                        PRIVATE    they are not, and must stay where they are

    all SHARED          each rank updates a shard of the variables
    all READY           each rank updates its own copies; then the ranks share them (runtime/host_variables.py)
    else                a rank has values of its own, which a program or the user has set: each rank makes its variables
                        private, and updates its own copies

A variable becomes private in its place: anonymous pages replace those of the segment at the same addresses, so every
tensor that refers to them stays valid. Hence each variable in a segment begins at a page.
"""

# SPDX-License-Identifier: Apache-2.0
import ctypes
import enum
import mmap
import os
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from argosy.engine.collective.group import Group
from argosy.engine.collective.shm import FlatBuffer

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_MAP_FIXED = 0x10


class Status(enum.IntEnum):
    """Where a rank has the variables that the current step updates."""

    PRIVATE = 0
    SHARED = 1
    READY = 2


@dataclass
class HostMemory:
    """The state of a process: what this rank offers before a step, and what the ranks agreed on in it."""

    is_ready: bool = False
    """True: the variables of the current step may be moved to shared memory."""
    agreed: Status = Status.PRIVATE

    def agree(
        self,
        group: Group,
        statuses: FlatBuffer,
        variables: Sequence[torch.Tensor],
        shared: MutableMapping[Any, Any],
        what: str,
    ) -> Status:
        """Exchange the statuses of the ranks of one host; a barrier. All ranks call it with the same variables.

        `shared` are the tensors in shared memory. Unless the result is SHARED, none of the variables is among them
        afterwards, on any rank.
        """
        if all(variable in shared for variable in variables):
            status = Status.SHARED
        else:
            status = Status.READY if self.is_ready else Status.PRIVATE
        statuses.local[0] = int(status)
        group.start_barrier(what).wait()
        different = {int(flags[0]) for flags in statuses.per_rank}
        self.agreed = Status(different.pop()) if len(different) == 1 else Status.PRIVATE
        if self.agreed is not Status.SHARED:
            for variable in variables:
                if shared.pop(variable, None) is not None:
                    make_private(variable)
            group.start_barrier(what).wait()  # no rank writes before all have copied the values
        return self.agreed


def padded_to_pages(value: torch.Tensor) -> int:
    """The bytes of a variable in a segment: whole pages, at least one."""
    return max(-(-value.nbytes // mmap.PAGESIZE), 1) * mmap.PAGESIZE


def make_private(tensor: torch.Tensor) -> None:
    """Replace the shared pages of a dense tensor by private ones with the same values, at the same address."""
    address, size = tensor.data_ptr(), padded_to_pages(tensor)
    assert address % mmap.PAGESIZE == 0, f"a tensor in shared memory begins at {address:#x}, not at a page"
    values = ctypes.string_at(address, tensor.nbytes)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    mapped = _libc.mmap(
        ctypes.c_void_p(address), ctypes.c_size_t(size), protection, flags, -1, ctypes.c_long(0)
    )
    if mapped != address:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot map {size} bytes of private memory: {os.strerror(error)}")
    ctypes.memmove(address, values, len(values))

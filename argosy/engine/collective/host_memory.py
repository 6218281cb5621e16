"""Variables of which the ranks of a host have one copy, in memory that all of them map.

    status of a rank    SHARED     all variables that the step updates are in the shared memory
                        READY      they are not, and may be moved there after the step
                        PRIVATE    they are not, and must stay where they are

    all SHARED          each rank updates a shard of the variables
    all READY           each rank updates its own copies; then the ranks share them (runtime/host_variables.py)
    else                a rank has values of its own, which a program or the user has set: each rank makes its variables
                        private, and updates its own copies

A variable becomes private in its place: anonymous pages replace those of the segment at the same addresses, so every
tensor that refers to them stays valid. Hence each variable in a segment begins at a page. Before a fork all variables
become private: the child process gets the values of this moment, as with any other memory.
"""

# SPDX-License-Identifier: Apache-2.0
import ctypes
import enum
import mmap
import os
import threading
import weakref
from collections.abc import Iterable, Sequence

import torch
from torch.utils.weak import WeakIdKeyDictionary

from argosy.engine import process_effects
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


class HostMemory:
    """The state of a process: what this rank offers before a step, and what the ranks agreed on in it."""

    def __init__(self) -> None:
        self.is_ready = False
        """True: the variables of the current step may be moved to shared memory."""
        self.agreed = Status.PRIVATE
        self.is_updating = False
        """True between `agree` and `end`."""
        self._shared: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._lock = threading.RLock()
        """Held during updates, so that no other thread forks meanwhile."""

    def add(self, variables: Iterable[torch.Tensor]) -> None:
        """Register tensors in shared memory."""
        process_effects.install("private-before-fork", lambda: _leave_before_forks(self))
        for variable in variables:
            self._shared[variable] = True

    def leave(self, variables: Iterable[torch.Tensor] | None = None) -> None:
        """Make variables private that are in shared memory; all by default."""
        with self._lock:
            for variable in list(self._shared) if variables is None else variables:
                if self._shared.pop(variable, None) is not None:
                    make_private(variable)

    def agree(
        self, group: Group, statuses: FlatBuffer, variables: Sequence[torch.Tensor], what: str
    ) -> Status:
        """Exchange the statuses of the ranks of one host; a barrier. All ranks call it with the same variables.

        Unless the result is SHARED, none of the variables is in shared memory afterwards, on any rank. The caller must
        call `end` when all ranks have updated.
        """
        self._lock.acquire()
        self.is_updating = True
        if all(variable in self._shared for variable in variables):
            status = Status.SHARED
        else:
            status = Status.READY if self.is_ready else Status.PRIVATE
        statuses.local[0] = int(status)
        group.start_barrier(what, part_of="all_reduce").wait()
        different = {int(flags[0]) for flags in statuses.per_rank}
        self.agreed = Status(different.pop()) if len(different) == 1 else Status.PRIVATE
        if self.agreed is not Status.SHARED:
            self.leave(variables)
            group.start_barrier(what).wait()  # no rank writes before all have copied the values
        return self.agreed

    def end(self) -> None:
        """All ranks have updated, or the step has failed."""
        if self.is_updating:
            self.is_updating = False
            self._lock.release()


def _leave_before_forks(memory: HostMemory) -> None:
    """Let child processes get private values. A hook cannot be removed: it ends with `memory`."""
    reference = weakref.ref(memory)

    def leave() -> None:
        if (memory := reference()) is not None:
            memory.leave()

    os.register_at_fork(before=leave)


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

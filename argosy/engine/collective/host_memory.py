"""Variables of which the ranks of a host have one copy, in memory that all of them map.

    status of a rank    SHARED     all variables that the step updates are in the shared memory
                        READY      they are not, and may be moved there after the step
                        PRIVATE    they are not, and must stay where they are

    all SHARED          each rank updates a shard of the variables
    all READY           each rank updates its own copies; then the ranks share them (runtime/host_variables.py)
    else                a rank has values of its own, which a program or the user has set: each rank makes its variables
                        private, and updates its own copies

In mixed precision the 16-bit copies of weights are shared together with them. Each rank publishes which copies its step
writes, and whether they are in shared memory: copies are complete after a step only if all ranks write the same ones,
in shared memory.

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
        self.has_same_copies = False
        """True: in the current step all ranks write the 16-bit copies of the same weights."""
        self._has_shared_copies = False
        """True: all ranks write the same copies, in shared memory."""
        self._copies: Sequence[tuple[torch.Tensor, torch.Tensor]] = ()
        self._copies_key = 0
        self._copy_of: WeakIdKeyDictionary = WeakIdKeyDictionary()
        """Variables in shared memory whose 16-bit copies are there as well."""
        self._shared: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._lock = threading.RLock()
        """Held during updates, so that no other thread forks meanwhile."""

    @property
    def copies_are_complete(self) -> bool:
        """After a step: True if the 16-bit copies that it wrote are complete, and not only this rank's shard."""
        return self.agreed is not Status.SHARED or self._has_shared_copies

    def add(
        self,
        variables: Iterable[torch.Tensor],
        copies: Iterable[tuple[torch.Tensor, torch.Tensor]] = (),
    ) -> None:
        """Register tensors in shared memory; `copies`: variables with their 16-bit copies."""
        process_effects.install("private-before-fork", lambda: _leave_before_forks(self))
        for variable in variables:
            self._shared[variable] = True
        for variable, copy in copies:
            self._copy_of[variable] = copy

    def offer_copies(self, key: int, copies: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Before a step: the weights with the 16-bit copies that it writes; `key` identifies them on all ranks."""
        self._copies_key, self._copies = key, copies

    def leave(self, variables: Iterable[torch.Tensor] | None = None) -> None:
        """Make variables private that are in shared memory, with their copies; all by default."""
        with self._lock:
            for variable in list(self._shared) if variables is None else variables:
                if self._shared.pop(variable, None) is not None:
                    make_private(variable)
                    if (copy := self._copy_of.pop(variable, None)) is not None:
                        make_private(copy)

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
        are_shared = all(self._copy_of.get(weight) is copy for weight, copy in self._copies)
        statuses.local[:3] = torch.tensor([int(status), self._copies_key, int(are_shared)])
        group.start_barrier(what, part_of="all_reduce").wait()
        published, keys, shared = zip(*(flags[:3].tolist() for flags in statuses.per_rank), strict=True)
        self.agreed = Status(published[0]) if len(set(published)) == 1 else Status.PRIVATE
        self.has_same_copies = len(set(keys)) == 1
        self._has_shared_copies = self.has_same_copies and all(shared)
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

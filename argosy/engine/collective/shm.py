"""Shared memory between the ranks of one host: anonymous segments, and flat gradient buffers in them.

A segment is a memfd of one rank that the others open through /proc. It has no name in the file system, so it is freed
with its last process, however that ended.

    with shared memory    buffer of rank 0   ┐
                          buffer of rank 1   ├─ one segment: every rank reads all of it, and writes its shard of the
                          result             ┘  result. All ranks of the host share the result: it is read-only.
    with sockets          local = result        the backend reduces in place

A buffer without a result (`has_result=False`) is for reduce-scatters: each rank sums its shard into its own buffer.
"""

# SPDX-License-Identifier: Apache-2.0
import mmap
import os
import platform
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from argosy.engine.log import logger

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PAGE = 4096


@dataclass(frozen=True)
class SharedSegment:
    """A segment of memory that several ranks have mapped."""

    memory: mmap.mmap
    ranks: tuple[int, ...]
    index: int
    """The index of this rank in `ranks`."""
    pids: tuple[int, ...]


def is_supported() -> bool:
    """True on Linux on x86-64: the barrier relies on its memory order and its system call numbers."""
    return platform.system() == "Linux" and platform.machine() == "x86_64" and hasattr(os, "pidfd_open")


def host_id() -> str:
    """Equal for processes of one host: with the same kernel, network namespace and pid namespace."""
    if not _BOOT_ID.exists():
        return platform.node()
    namespaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "pid")]
    return "/".join([_BOOT_ID.read_text().strip(), *namespaces])


class AllGatherStrings(Protocol):
    """Gathers a value from every rank of the job, or from these ranks, in their order."""

    def __call__(self, what: str, value: str, ranks: Sequence[int] | None = None) -> list[str]: ...


def map_segment(
    all_gather: AllGatherStrings, name: str, ranks: Sequence[int], rank: int, nbytes: int
) -> SharedSegment | None:
    """Map a segment of this size for each set of `ranks` (all ranks of the job call this); None if one rank cannot."""
    descriptor, problem = -1, ""
    if rank == ranks[0]:
        try:
            descriptor = _create(nbytes)
        except OSError as e:
            problem = str(e)
    offers = all_gather(f"shm-{name}#1 (mapping shared memory)", f"{os.getpid()} {descriptor}", ranks)
    pids = tuple(int(offer.split()[0]) for offer in offers)
    memory = None
    try:
        if rank != ranks[0]:
            descriptor = _open(pids[0], int(offers[0].split()[1]))
        memory = mmap.mmap(descriptor, nbytes) if descriptor >= 0 else None
    except OSError as e:
        problem = str(e)
    # Also a barrier: close the descriptor only after all ranks have opened it.
    problems = [p for p in all_gather(f"shm-{name}#2 (mapping shared memory)", problem) if p]
    if descriptor >= 0:
        os.close(descriptor)
    if problems or memory is None:
        logger.warning(
            "collectives use sockets, the ranks cannot share memory (%s); ARGOSY_SHM=0 silences this warning",
            problems[0],
        )
        return None
    return SharedSegment(memory, tuple(ranks), ranks.index(rank), pids)


def _create(nbytes: int) -> int:
    descriptor = os.memfd_create("argosy-shm", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, nbytes)
    return descriptor


def _open(pid: int, descriptor: int) -> int:
    """A descriptor of another process's segment; OSError if it has none, or this process may not open it."""
    return os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)


class FlatBuffer:
    """Memory for `numel` gradient elements of each rank, contiguous; in shared memory if there is a segment."""

    def __init__(
        self,
        numel: int,
        dtype: torch.dtype,
        device: torch.device,
        segment: SharedSegment | None,
        has_result: bool = True,
    ) -> None:
        self.segment = segment
        if segment is None:
            self.local = self.result = torch.zeros(numel, dtype=dtype, device=device)
            self.per_rank = [self.local]
            return
        nbytes = padded_bytes(numel, dtype)
        self.per_rank = [
            torch.frombuffer(segment.memory, dtype=dtype, count=numel, offset=index * nbytes)
            for index in range(len(segment.pids) + has_result)
        ]
        self.local = self.per_rank[segment.index]
        self.result = self.per_rank.pop() if has_result else self.local

    def reduced(self, in_shm: bool) -> torch.Tensor:
        """The tensor that holds the sum: a group without shared memory sums in place, also in a shared buffer."""
        return self.result if in_shm else self.local

    def span(self, first: int, count: int) -> tuple[list[torch.Tensor], torch.Tensor]:
        """A range of every rank's buffer, and the same range of the result."""
        here = slice(first, first + count)
        return [buffer[here] for buffer in self.per_rank], self.result[here]


BufferKey = tuple[str, int, torch.dtype, str, bool]
"""Name, number of elements, dtype, the group that shares it, and whether it has a result."""


class FlatBuffers:
    """The flat buffers of a process; each is freed together with its owner, the program that uses it.

    Owners never share a buffer: ranks collect garbage at different times, and a rank that still had the buffer of
    another owner would not take part in the creation of a new one.
    """

    def __init__(self) -> None:
        self.num_created = 0
        self._by_owner: weakref.WeakKeyDictionary[object, dict[BufferKey, FlatBuffer]] = (
            weakref.WeakKeyDictionary()
        )
        self._thread = threading.local()

    @contextmanager
    def owned_by(self, owner: object) -> Iterator[None]:
        """Buffers that this thread requests inside belong to `owner`; outside, to the process."""
        before = getattr(self._thread, "owner", self)
        self._thread.owner = owner
        try:
            yield
        finally:
            self._thread.owner = before

    def get(self, key: BufferKey, create: Callable[[], FlatBuffer]) -> FlatBuffer:
        """The owner's buffer with this key; created by the first call."""
        buffers = self._by_owner.setdefault(getattr(self._thread, "owner", self), {})
        if key not in buffers:
            buffers[key] = create()
            self.num_created += 1
        return buffers[key]


def padded_bytes(numel: int, dtype: torch.dtype) -> int:
    """The bytes of one rank's buffer, rounded up to whole pages."""
    return -(-numel * dtype.itemsize // _PAGE) * _PAGE

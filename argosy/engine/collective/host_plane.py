"""The host plane: ranks of one host add up through shared memory instead of sockets.

    each rank   copies a piece of its tensor into its area of the segment
                ── barrier ──
                adds up its share of the piece over all areas, into area 0
                ── barrier ──
                copies the piece back                              next piece: the other half of every area

Two halves in turn: when a rank writes into a half again, everybody has passed the barrier that stands behind
reading it. A barrier costs some microseconds: each rank has a counter that only it writes, and reads those of
the others, first in a short loop, then asleep in the kernel (futex).

The segment is an anonymous file of rank 0 that the others open through /proc: it goes when the last process
goes, whatever ended them. The order of the sum is that of the ranks, so results repeat, equal on all of them.
"""

# SPDX-License-Identifier: Apache-2.0
import ctypes
import mmap
import os
import platform
import select
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

_libc = ctypes.CDLL(None, use_errno=True)
_SYS_FUTEX = 202
_FUTEX_WAIT, _FUTEX_WAKE, _ALL = 0, 1, 0x7FFFFFFF
_LINE = 64  # bytes of a cache line: counters of two ranks must not share one
_WORDS = _LINE // 8
_HALF = 1 << 20
"""Bytes of a piece: large enough that barriers do not count, small enough to stay in the cache."""
_SPINS = 3000
"""Looks at a counter before sleeping, some 0.2 ms; few if the ranks have to share cores."""
COMBINE: dict[str, Callable[..., torch.Tensor]] = {
    "sum": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
}
DTYPES = frozenset(
    {
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.int8,
    }
)


class _Second(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_SLICE = _Second(1, 0)


_KINDS = sorted(DTYPES, key=str)


def is_possible() -> bool:
    """True on Linux on x86-64, whose stores are seen in order and whose system calls these are."""
    return platform.system() == "Linux" and platform.machine() == "x86_64" and hasattr(os, "pidfd_open")


def create_segment(size: int) -> int:
    """The descriptor of a segment for so many ranks."""
    made = os.memfd_create("argosy-host-plane", os.MFD_CLOEXEC)
    os.ftruncate(made, _bytes(size))
    return made


def open_segment(pid: int, descriptor: int) -> int:
    """A descriptor of another process's segment; OSError if this process may not."""
    return os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)


def _head(size: int) -> int:
    """Bytes before the areas: a line for each rank, in whole pages."""
    return -(-size * _LINE // mmap.PAGESIZE) * mmap.PAGESIZE


def _bytes(size: int) -> int:
    return _head(size) + size * 2 * _HALF


def _pieces(tensors: Sequence[torch.Tensor], step: int) -> Iterator[list[torch.Tensor]]:
    """The elements of all tensors in pieces of at most `step`, each as a list of parts of tensors; one at least."""
    piece: list[torch.Tensor] = []
    room = step
    for tensor in tensors:
        first = 0
        while first < tensor.numel():
            part = tensor[first : first + room]
            piece.append(part)
            first += part.numel()
            room -= part.numel()
            if room == 0:
                yield piece
                piece, room = [], step
    if piece or not any(tensor.numel() for tensor in tensors):
        yield piece


def _copy(parts: Sequence[torch.Tensor], area: torch.Tensor, into: bool) -> None:
    first = 0
    for part in parts:
        there = area[first : first + part.numel()]
        first += part.numel()
        if into:
            there.copy_(part)
        else:
            part.copy_(there)


class HostPlane:
    """Sums over the ranks of a host; every rank calls the same in the same order."""

    def __init__(self, segment: int, rank: int, pids: list[int]) -> None:
        self.rank, self.size = rank, len(pids)
        self._memory = mmap.mmap(segment, _bytes(self.size))
        self._counters = memoryview(self._memory)[: _head(self.size)].cast("q")
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._turn = 0
        self._half = 0
        self._spins = _SPINS if self.size <= len(os.sched_getaffinity(0)) else 50
        self._others = [r for r in range(self.size) if r != rank]
        self._alive = {r: os.pidfd_open(pids[r]) for r in self._others}
        self._areas: dict[torch.dtype, list[list[torch.Tensor]]] = {}

    def all_reduce(
        self, tensors: Sequence[torch.Tensor], op: str, idle: Callable[[int], None], number: int
    ) -> str:
        """Combine flat tensors of one dtype over the ranks, in place; `idle(rank)` is called every second of waiting.

        `number` counts the group's collectives. Returns what another rank does differently, or "".
        """
        dtype, total = tensors[0].dtype, sum(tensor.numel() for tensor in tensors)
        halves, combine = self._halves(dtype), COMBINE[op]
        mine = array("q", (number, total, 8 * _KINDS.index(dtype) + list(COMBINE).index(op)))
        place = self.rank * _WORDS
        self._counters[place + 1 : place + 4] = memoryview(mine)
        for turn, piece in enumerate(_pieces(tensors, _HALF // dtype.itemsize)):
            areas = halves[self._half]
            count = sum(part.numel() for part in piece)
            _copy(piece, areas[self.rank], into=True)
            self.barrier(idle)
            if turn == 0 and (differing := self._differing(mine)):
                return differing
            share = slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)
            result = areas[0][share]
            for area in areas[1:]:
                combine(result, area[share], out=result)
            self.barrier(idle)
            _copy(piece, areas[0], into=False)
            self._half ^= 1
        return ""

    def _differing(self, mine: "array[int]") -> str:
        """Compare number, size and kind with the other ranks: what is summed must be the same thing."""
        for other in self._others:
            place = other * _WORDS
            theirs = self._counters[place + 1 : place + 4]
            if theirs != mine:
                return (
                    f"rank {other} exchanges {theirs[1]} elements as its collective {theirs[0]}, and this rank "
                    f"{mine[1]} elements as its collective {mine[0]}, or another dtype"
                )
        return ""

    def barrier(self, idle: Callable[[int], None]) -> None:
        """Return when every rank has come."""
        self._turn += 1
        turn, counters = self._turn, self._counters
        counters[self.rank * _WORDS] = turn
        self._futex(self.rank, _FUTEX_WAKE, _ALL, None)
        for other in self._others:
            place = other * _WORDS
            for _ in range(self._spins):
                if counters[place] >= turn:
                    break
            else:
                self._sleep(other, place, turn, idle)

    def _sleep(self, other: int, place: int, turn: int, idle: Callable[[int], None]) -> None:
        while (seen := self._counters[place]) < turn:
            slept = self._futex(other, _FUTEX_WAIT, seen & 0xFFFFFFFF, ctypes.byref(_SLICE))
            if slept and self._counters[place] < turn and ctypes.get_errno() == 110:  # ETIMEDOUT
                idle(other)

    def has_ended(self, rank: int) -> bool:
        """True if the process of a rank is no more."""
        poll = select.poll()
        poll.register(self._alive[rank], select.POLLIN)
        return bool(poll.poll(0))

    def _futex(self, rank: int, what: int, value: int, timeout: Any) -> int:
        address = ctypes.c_void_p(self._base + rank * _LINE)
        done: int = _libc.syscall(_SYS_FUTEX, address, what, ctypes.c_uint32(value), timeout, None, 0)
        return done

    def _halves(self, dtype: torch.dtype) -> list[list[torch.Tensor]]:
        """The two halves of every rank's area, as tensors of this dtype."""
        if dtype not in self._areas:
            count = _HALF // dtype.itemsize
            self._areas[dtype] = [
                [
                    torch.frombuffer(
                        self._memory,
                        dtype=dtype,
                        count=count,
                        offset=_head(self.size) + (2 * rank + half) * _HALF,
                    )
                    for rank in range(self.size)
                ]
                for half in range(2)
            ]
        return self._areas[dtype]

"""The host plane: ranks of one host exchange through shared memory instead of sockets.

A sum of flat buffers, which lie in shared memory (flat_buffer.py), needs no copy:

                ── barrier ──                                    now all gradients are there
    each rank   adds up its share of every rank's buffer, into its share of the result
                ── barrier ──                                    now all shares are there

Any other tensor goes through the plane's own areas in pieces that stay in the cache:

    each rank   copies a piece of its tensor into its area
                ── barrier ──
                adds up its share of the piece over all areas, into area 0
                ── barrier ──
                copies the piece back                              next piece: the other half of every area

Two halves in turn: when a rank writes into a half again, everybody has passed the barrier that stands behind
reading it. A barrier costs some microseconds: each rank has a counter that only it writes, and reads those of
the others, first in a short loop, then asleep in the kernel (futex).

The order of a sum is that of the ranks, so results repeat, equal on all of them.
"""

# SPDX-License-Identifier: Apache-2.0
import ctypes
import mmap
import os
import select
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from argosy.engine.collective.sharing import Shared

_libc = ctypes.CDLL(None, use_errno=True)
_SYS_FUTEX = 202
_FUTEX_WAIT, _FUTEX_WAKE, _ALL = 0, 1, 0x7FFFFFFF
_LINE = 64  # bytes of a cache line: counters of two ranks must not share one
_WORDS = _LINE // 8
_HALF = 1 << 20
"""Bytes of a piece: large enough that barriers do not count, small enough to stay in the cache."""
_IN_CACHE = 1 << 18
"""Bytes of the result that are summed at a time if more than two buffers are added up."""
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
_KINDS = sorted(DTYPES, key=str)
Idle = Callable[[int], None]
"""Called with the place of the rank that is waited for, once a second."""


class _Second(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_SLICE = _Second(1, 0)


def plane_bytes(size: int) -> int:
    """What the plane of so many ranks needs of shared memory."""
    return _head(size) + size * 2 * _HALF


def _head(size: int) -> int:
    """Bytes before the areas: a line for each rank, in whole pages."""
    return -(-size * _LINE // mmap.PAGESIZE) * mmap.PAGESIZE


class HostPlane:
    """Exchanges between the ranks of a host, who are known by their places; all call the same in the same order.

    Each exchange has the number that it has in its group, and returns what another rank does differently, or "".
    """

    def __init__(self, shared: Shared) -> None:
        self.index, self.size = shared.index, len(shared.pids)
        self._memory = shared.memory
        self._counters = memoryview(self._memory)[: _head(self.size)].cast("q")
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._turn = 0
        self._half = 0
        self._slot = 0
        self._ranks = shared.ranks
        self._spins = _SPINS if self.size <= len(os.sched_getaffinity(0)) else 50
        self._others = [place for place in range(self.size) if place != self.index]
        self._alive = {place: _opened(shared.pids[place]) for place in self._others}
        self._areas: dict[torch.dtype, list[list[torch.Tensor]]] = {}

    def share_of(self, count: int) -> slice:
        """The part of so many elements that this rank sums, on borders of cache lines."""
        lines = -(-count // _LINE)
        first, last = (min(count, lines * i // self.size * _LINE) for i in (self.index, self.index + 1))
        return slice(first, last)

    def sum_share(self, parts: Sequence[torch.Tensor], result: torch.Tensor, idle: Idle, number: int) -> str:
        """Sum this rank's share of all ranks' flat buffers into that of the result; the others' may be under way."""
        mine = self._announce(number, result.numel(), result.dtype, "sum")
        self.barrier(idle)
        if differing := self._differing(mine):
            return differing
        share = self.share_of(result.numel())
        step = share.stop - share.start if self.size == 2 else _IN_CACHE // result.dtype.itemsize
        for first in range(share.start, share.stop, max(step, 1)):
            here = slice(first, min(first + step, share.stop))
            out = torch.add(parts[0][here], parts[1][here], out=result[here])
            for part in parts[2:]:
                out.add_(part[here])
        return ""

    def all_reduce(
        self,
        tensors: Sequence[torch.Tensor],
        op: str,
        idle: Idle,
        number: int,
        root: int | None = None,
    ) -> str:
        """Combine flat tensors of one dtype over the ranks, in place: on all of them, or on `root` alone."""
        dtype, total = tensors[0].dtype, sum(tensor.numel() for tensor in tensors)
        halves, combine = self._halves(dtype), COMBINE[op]
        mine = self._announce(number, total, dtype, op)
        for turn, piece in enumerate(_pieces(tensors, _HALF // dtype.itemsize)):
            areas = halves[self._half]
            count = sum(part.numel() for part in piece)
            _copy(piece, areas[self.index], into=True)
            self.barrier(idle)
            if turn == 0 and (differing := self._differing(mine)):
                return differing
            share = slice(count * self.index // self.size, count * (self.index + 1) // self.size)
            result = areas[0][share]
            for area in areas[1:]:
                combine(result, area[share], out=result)
            self.barrier(idle)
            if root in (None, self.index):
                _copy(piece, areas[0], into=False)
            self._half ^= 1
        return ""

    def broadcast(self, tensors: Sequence[torch.Tensor], root: int, idle: Idle, number: int) -> str:
        """Give every rank what `root` has in its flat tensors of one dtype."""
        dtype, total = tensors[0].dtype, sum(tensor.numel() for tensor in tensors)
        halves = self._halves(dtype)
        mine = self._announce(number, total, dtype, "sum")
        for turn, piece in enumerate(_pieces(tensors, _HALF // dtype.itemsize)):
            area = halves[self._half][0]
            if self.index == root:
                _copy(piece, area, into=True)
            self.barrier(idle)
            if turn == 0 and (differing := self._differing(mine)):
                return differing
            if self.index != root:
                _copy(piece, area, into=False)
            self._half ^= 1
        return ""

    def meet(self, idle: Idle, number: int) -> str:
        """A barrier as an exchange of its own."""
        mine = self._announce(number, 0, torch.uint8, "sum")
        self.barrier(idle)
        return self._differing(mine)

    def barrier(self, idle: Idle) -> None:
        """Return when every rank has come."""
        self._turn += 1
        turn, counters = self._turn, self._counters
        counters[self.index * _WORDS] = turn
        self._futex(self.index, _FUTEX_WAKE, _ALL, None)
        for other in self._others:
            place = other * _WORDS
            for _ in range(self._spins):
                if counters[place] >= turn:
                    break
            else:
                self._sleep(other, place, turn, idle)

    def has_ended(self, other: int) -> bool:
        """True if the process of another rank is no more."""
        process = self._alive[other]
        if process is None:
            return True
        poll = select.poll()
        poll.register(process, select.POLLIN)
        return bool(poll.poll(0))

    def _announce(self, number: int, total: int, dtype: torch.dtype, op: str) -> "array[int]":
        """Write down what this rank is about to exchange, for the others to compare.

        Two slots in turn: a rank may be at its next exchange while another compares this one.
        """
        mine = array("q", (number, total, 8 * _KINDS.index(dtype) + list(COMBINE).index(op)))
        self._slot ^= 1
        place = self.index * _WORDS + 1 + 3 * self._slot
        self._counters[place : place + 3] = memoryview(mine)
        return mine

    def _differing(self, mine: "array[int]") -> str:
        """Compare number, size and kind with the other ranks: what is summed must be the same thing."""
        for other in self._others:
            place = other * _WORDS + 1 + 3 * self._slot
            theirs = self._counters[place : place + 3]
            if theirs != mine:
                return (
                    f"rank {self._ranks[other]} exchanges {theirs[1]} elements as its collective {theirs[0]}, "
                    f"and this rank {mine[1]} elements as its collective {mine[0]}, or another dtype"
                )
        return ""

    def _sleep(self, other: int, place: int, turn: int, idle: Idle) -> None:
        while (seen := self._counters[place]) < turn:
            slept = self._futex(other, _FUTEX_WAIT, seen & 0xFFFFFFFF, ctypes.byref(_SLICE))
            if slept and self._counters[place] < turn and ctypes.get_errno() == 110:  # ETIMEDOUT
                idle(other)

    def _futex(self, place: int, what: int, value: int, timeout: Any) -> int:
        address = ctypes.c_void_p(self._base + place * _LINE)
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
                        offset=_head(self.size) + (2 * place + half) * _HALF,
                    )
                    for place in range(self.size)
                ]
                for half in range(2)
            ]
        return self._areas[dtype]


def _opened(pid: int) -> int | None:
    """A descriptor of a process; None if it is no more."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


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

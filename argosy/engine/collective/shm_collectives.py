"""Collectives of the ranks of one host through shared memory instead of sockets.

An all-reduce of flat buffers, which are in shared memory already (shm.py), needs no copy:

                ── barrier ──                                    now all gradients are written
    each rank   sums its shard of every rank's buffer into its shard of the result
                ── barrier ──                                    now the result is complete

Any other tensor is copied through staging areas, in chunks that stay in the cache:

    each rank   copies a chunk of its tensor into its area
                ── barrier ──
                reduces its shard of the chunk over all areas, into area 0
                ── barrier ──
                copies the chunk back                              next chunk: the other half of every area

The halves are used alternately: when a rank writes into a half again, every rank has passed the barrier that follows
reading it. A barrier takes a few microseconds: each rank has a counter that only it writes, and reads the counters of
the others, first in a short spin loop, then asleep in the kernel (futex). Up to 8 ranks read the counters of all
others. More ranks have several rounds, each with up to 7 others (a dissemination barrier), because the reads and
wake-ups of all pairs would be quadratic:

    round 0     wait for the ranks 1, 2, … 7 before this one         these 8 have arrived
    round 1     wait for the ranks 8, 16, … 56 before this one       they have finished round 0: these 64 have arrived

Sums are computed in rank order, so results are deterministic and equal on all ranks. Sums of 16-bit floats are
computed in float32 and rounded once.
"""

# SPDX-License-Identifier: Apache-2.0
import ctypes
import functools
import mmap
import os
import select
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from argosy.engine.collective.shm import SharedSegment

_libc = ctypes.CDLL(None, use_errno=True)
_SYS_FUTEX = 202
_FUTEX_WAIT, _FUTEX_WAKE, _ALL = 0, 1, 0x7FFFFFFF
_LINE = 64  # bytes of a cache line: counters of two ranks must not share one
_WORDS = _LINE // 8
_RADIX = 8
"""In each round of a barrier a rank waits for one less than this many others."""
_HALF = 1 << 20
"""Bytes of a chunk: large enough that barriers do not count, small enough to stay in the cache."""
_CACHE_BLOCK = 1 << 18
"""Bytes of the result that are summed at a time if there are more than two buffers."""
_SPINS = 3000
"""Reads of a counter before sleeping, some 0.2 ms; fewer if the ranks have to share cores."""
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
_DTYPE_ORDER = sorted(DTYPES, key=str)
_NARROW = (torch.float16, torch.bfloat16)
OnWait = Callable[[int], None]
"""Called once a second during a wait, with the index of the rank that is waited for; may raise."""


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_POLL_PERIOD = _Timespec(1, 0)


def shm_bytes(size: int) -> int:
    """The shared memory that the collectives of so many ranks need."""
    return _header_bytes(size) + size * 2 * _HALF


def _header_bytes(size: int) -> int:
    """Bytes before the areas: a cache line for each rank, in whole pages."""
    return -(-size * _LINE // mmap.PAGESIZE) * mmap.PAGESIZE


class ShmCollectives:
    """Collectives of the ranks that have mapped a segment; all ranks call the same ones in the same order.

    Ranks are identified by their index in the segment. Each collective takes its sequence number in the group. It
    returns a description of the mismatch if another rank runs a different collective, else "".
    """

    def __init__(self, segment: SharedSegment) -> None:
        self.index, self.size = segment.index, len(segment.pids)
        self._memory = segment.memory
        self._counters = memoryview(self._memory)[: _header_bytes(self.size)].cast("q")
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._barriers = 0
        self._half = 0
        self._slot = 0
        self._ranks = segment.ranks
        self._spins = _SPINS if self.size <= len(os.sched_getaffinity(0)) else 50
        self._others = [index for index in range(self.size) if index != self.index]
        self._rounds = barrier_rounds(self.index, self.size)
        self._pidfds = {index: _pidfd(segment.pids[index]) for index in self._others}
        self._areas: dict[torch.dtype, list[list[torch.Tensor]]] = {}

    def shard_of(self, count: int) -> slice:
        """The shard of so many elements that this rank reduces, aligned to cache lines."""
        lines = -(-count // _LINE)
        first, last = (min(count, lines * i // self.size * _LINE) for i in (self.index, self.index + 1))
        return slice(first, last)

    def reduce_scatter(
        self, buffers: Sequence[torch.Tensor], result: torch.Tensor, on_wait: OnWait, number: int
    ) -> str:
        """Sum this rank's shard of all ranks' flat buffers into its shard of the result; no final barrier."""
        signature = self._announce(number, result.numel(), result.dtype, "sum")
        self._barrier(on_wait)
        if mismatch := self._mismatch(signature):
            return mismatch
        shard = self.shard_of(result.numel())
        step = shard.stop - shard.start if self.size == 2 else _CACHE_BLOCK // result.dtype.itemsize
        for first in range(shard.start, shard.stop, max(step, 1)):
            here = slice(first, min(first + step, shard.stop))
            add_up([buffer[here] for buffer in buffers], result[here])
        return ""

    def sum_shard(self, buffers: Sequence[torch.Tensor], shard: slice, on_wait: OnWait, number: int) -> str:
        """Sum a shard of all ranks' flat buffers into this rank's own buffer; no final barrier.

        The shards of the ranks must not overlap: then no other rank reads what this rank writes.
        """
        signature = self._announce(number, buffers[0].numel(), buffers[0].dtype, "sum")
        self._barrier(on_wait)
        if mismatch := self._mismatch(signature):
            return mismatch
        add_in_place(buffers, self.index, shard)
        return ""

    def all_reduce(
        self,
        tensors: Sequence[torch.Tensor],
        op: str,
        on_wait: OnWait,
        number: int,
        root: int | None = None,
    ) -> str:
        """Reduce flat tensors of one dtype over the ranks, in place: on all of them, or on `root` alone."""
        dtype, total = tensors[0].dtype, sum(tensor.numel() for tensor in tensors)
        halves, combine = self._halves(dtype), COMBINE[op]
        signature = self._announce(number, total, dtype, op)
        for i, chunk in enumerate(_chunks(tensors, _HALF // dtype.itemsize)):
            areas = halves[self._half]
            count = sum(part.numel() for part in chunk)
            _copy(chunk, areas[self.index], into=True)
            self._barrier(on_wait)
            if i == 0 and (mismatch := self._mismatch(signature)):
                return mismatch
            shard = slice(count * self.index // self.size, count * (self.index + 1) // self.size)
            result = areas[0][shard]
            if op == "sum":
                add_up([area[shard] for area in areas], result)
            else:
                for area in areas[1:]:
                    combine(result, area[shard], out=result)
            self._barrier(on_wait)
            if root in (None, self.index):
                _copy(chunk, areas[0], into=False)
            self._half ^= 1
        return ""

    def broadcast(self, tensors: Sequence[torch.Tensor], root: int, on_wait: OnWait, number: int) -> str:
        """Copy the flat tensors of one dtype of `root` to every rank."""
        dtype, total = tensors[0].dtype, sum(tensor.numel() for tensor in tensors)
        halves = self._halves(dtype)
        signature = self._announce(number, total, dtype, "sum")
        for i, chunk in enumerate(_chunks(tensors, _HALF // dtype.itemsize)):
            area = halves[self._half][0]
            if self.index == root:
                _copy(chunk, area, into=True)
            self._barrier(on_wait)
            if i == 0 and (mismatch := self._mismatch(signature)):
                return mismatch
            if self.index != root:
                _copy(chunk, area, into=False)
            self._half ^= 1
        return ""

    def all_gather(
        self, local: torch.Tensor, rows: Sequence[torch.Tensor], on_wait: OnWait, number: int
    ) -> str:
        """Copy the flat tensor of each rank to its row; all are of one size and dtype."""
        count, step = local.numel(), _HALF // local.dtype.itemsize
        halves = self._halves(local.dtype)
        signature = self._announce(number, count, local.dtype, "sum")
        rows[self.index].copy_(local)
        for first in range(0, max(count, 1), step):
            areas, span = halves[self._half], slice(first, min(first + step, count))
            areas[self.index][: span.stop - first].copy_(local[span])
            self._barrier(on_wait)
            if first == 0 and (mismatch := self._mismatch(signature)):
                return mismatch
            for other in self._others:
                rows[other][span].copy_(areas[other][: span.stop - first])
            self._half ^= 1
        return ""

    def barrier(self, on_wait: OnWait, number: int) -> str:
        """A barrier, as a separate collective."""
        signature = self._announce(number, 0, torch.uint8, "sum")
        self._barrier(on_wait)
        return self._mismatch(signature)

    def _barrier(self, on_wait: OnWait) -> None:
        """Block until every rank has called it."""
        self._barriers += 1
        counters = self._counters
        for number, others in enumerate(self._rounds):
            target = self._barriers * len(self._rounds) + number
            counters[self.index * _WORDS] = target
            self._futex(self.index, _FUTEX_WAKE, _ALL, None)
            for other in others:
                offset = other * _WORDS
                for _ in range(self._spins):
                    if counters[offset] >= target:
                        break
                else:
                    self._sleep(other, offset, target, on_wait)

    def has_exited(self, other: int) -> bool:
        """True if the process of another rank has exited."""
        pidfd = self._pidfds[other]
        if pidfd is None:
            return True
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def _announce(self, number: int, total: int, dtype: torch.dtype, op: str) -> "array[int]":
        """Publish sequence number, size and kind of the collective that this rank begins, for the others to compare.

        Two slots alternate: a rank may be in its next collective while another one still compares this one.
        """
        signature = array("q", (number, total, 8 * _DTYPE_ORDER.index(dtype) + list(COMBINE).index(op)))
        self._slot ^= 1
        offset = self.index * _WORDS + 1 + 3 * self._slot
        self._counters[offset : offset + 3] = memoryview(signature)
        return signature

    def _mismatch(self, signature: "array[int]") -> str:
        """How another rank's collective differs in sequence number, size or kind; "" if it does not."""
        first, end = 1 + 3 * self._slot, self.size * _WORDS
        columns = [self._counters[first + i : end : _WORDS].tolist() for i in range(3)]
        if all(column.count(value) == self.size for column, value in zip(columns, signature, strict=True)):
            return ""
        for other in self._others:
            offset = other * _WORDS + first
            theirs = self._counters[offset : offset + 3]
            if theirs != signature:
                return (
                    f"rank {self._ranks[other]} has {theirs[1]} elements in its collective {theirs[0]}, and this rank "
                    f"{signature[1]} elements in its collective {signature[0]}, or the dtypes differ"
                )
        return ""

    def _sleep(self, other: int, offset: int, target: int, on_wait: OnWait) -> None:
        while (seen := self._counters[offset]) < target:
            status = self._futex(other, _FUTEX_WAIT, seen & 0xFFFFFFFF, ctypes.byref(_POLL_PERIOD))
            if status and self._counters[offset] < target and ctypes.get_errno() == 110:  # ETIMEDOUT
                on_wait(self._blocking(other))

    def _blocking(self, other: int) -> int:
        """The rank that this barrier waits for: one that has exited in it, or not arrived; else `other`."""
        first = self._barriers * len(self._rounds)
        behind = [i for i in self._others if self._counters[i * _WORDS] < first + len(self._rounds) - 1]
        exited = (i for i in behind if self.has_exited(i))
        absent = (i for i in behind if self._counters[i * _WORDS] < first)
        return next(exited, next(absent, other))

    def _futex(self, index: int, operation: int, value: int, timeout: Any) -> int:
        address = ctypes.c_void_p(self._base + index * _LINE)
        status: int = _libc.syscall(_SYS_FUTEX, address, operation, ctypes.c_uint32(value), timeout, None, 0)
        return status

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
                        offset=_header_bytes(self.size) + (2 * index + half) * _HALF,
                    )
                    for index in range(self.size)
                ]
                for half in range(2)
            ]
        return self._areas[dtype]


def add_in_place(buffers: Sequence[torch.Tensor], index: int, shard: slice) -> None:
    """Add up the same shard of all buffers in buffer `index`; in the order of the buffers, block by block."""
    size = shard.stop - shard.start
    step = max(size, 1) if len(buffers) == 2 else _CACHE_BLOCK // buffers[0].dtype.itemsize
    for first in range(shard.start, shard.stop, step):
        parts = [buffer[first : min(first + step, shard.stop)] for buffer in buffers]
        add_up(parts, parts[index])


def add_up(parts: Sequence[torch.Tensor], out: torch.Tensor) -> None:
    """Set `out`, which may be one of the parts, to their sum, in their order."""
    if len(parts) == 2:
        torch.add(*parts, out=out)  # ATen adds 16-bit floats in float32 and rounds once
        return
    is_narrow = parts[0].dtype in _NARROW
    # In `out` itself, unless it is an addend that would be overwritten before its turn, or too narrow.
    is_later = any(out is part for part in parts[2:])
    first = parts[0].float() if is_narrow else parts[0]
    total = torch.add(first, parts[1], out=None if is_narrow or is_later else out)
    for part in parts[2:]:
        total.add_(part)
    if total is not out:
        out.copy_(total)


def barrier_rounds(index: int, size: int) -> list[list[int]]:
    """The ranks that rank `index` waits for in each round of a barrier; at least one round."""
    rounds: list[list[int]] = []
    distance = 1
    while distance < size or not rounds:
        steps = range(distance, min(distance * _RADIX, size), distance)
        rounds.append([(index - step) % size for step in steps])
        distance *= _RADIX
    return rounds


@functools.cache  # the groups of a process have the same members, and descriptors are limited
def _pidfd(pid: int) -> int | None:
    """A pidfd of a process; None if it has exited."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _chunks(tensors: Sequence[torch.Tensor], step: int) -> Iterator[list[torch.Tensor]]:
    """The elements of all tensors in chunks of at most `step`, each a list of tensor slices; at least one chunk."""
    chunk: list[torch.Tensor] = []
    room = step
    for tensor in tensors:
        first = 0
        while first < tensor.numel():
            part = tensor[first : first + room]
            chunk.append(part)
            first += part.numel()
            room -= part.numel()
            if room == 0:
                yield chunk
                chunk, room = [], step
    if chunk or not any(tensor.numel() for tensor in tensors):
        yield chunk


def _copy(parts: Sequence[torch.Tensor], area: torch.Tensor, into: bool) -> None:
    first = 0
    for part in parts:
        staged = area[first : first + part.numel()]
        first += part.numel()
        if into:
            staged.copy_(part)
        else:
            part.copy_(staged)

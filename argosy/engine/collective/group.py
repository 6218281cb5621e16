"""Process groups and their collectives: start one, compute meanwhile, wait for it.

work = group.start_all_reduce(gradient, what="fc_0.w_0@GRAD")
…                                              compute
work.wait()                                    gradient now holds the sum

The name of a group says which ranks are its members:

    dp             all ranks                                  dp.1           the same, a second communicator
    dp/intra2      the ranks of this rank's block of two      (0 1) (2 3)
    dp/inter2      the ranks at its position in every block   (0 2) (1 3)
    dp/leaders2    the first rank of every block              (0 2); the other ranks are in no group

Each communicator (the part before the slash) has its own connections and its own thread: collectives of two
communicators run concurrently, collectives of one communicator run in order.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from argosy.engine.collective.rank_liveness import RankMonitor, Timeouts, exited_error, store_lost_error
from argosy.engine.collective.rank_status import is_consequence
from argosy.engine.collective.shm import FlatBuffer
from argosy.engine.collective.shm_collectives import DTYPES, OnWait, ShmCollectives
from argosy.engine.collective.trace import TracedCollective, record_start
from argosy.engine.collective.work import COMPLETED, AllOf, BackendWork, Coalesced, ShmWork, Work
from argosy.engine.errors import CollectiveError, ConfigError, PeerLostError

_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
_HEARTBEATS = 3
"""After a broken connection: for how many heartbeats to look for the rank that has died."""
_NETWORK = (
    ". If it runs, check that the hosts reach each other at their addresses, or select another network with "
    "fleetrun --interface or GLOO_SOCKET_IFNAME"
)
_GROUP_NAME = re.compile(r"[^/]+(?:/(intra|inter|leaders)([1-9]\d*))?")


def communicator(base: str, number: int) -> str:
    """The name of a group's communicator: the first has the name of the group."""
    return f"{base}.{number}" if number else base


def members(name: str, rank: int, size: int) -> tuple[int, ...]:
    """The ranks of the group of this name that `rank` belongs to; itself alone if it belongs to none."""
    match = _GROUP_NAME.fullmatch(name)
    if match is None:
        raise ConfigError(
            f"{name!r} is no process group; use names such as dp, dp.1, dp/intra2, dp/inter2, dp/leaders2"
        )
    kind, text = match.groups()
    if kind is None:
        return tuple(range(size))
    block = int(text)
    if size % block:
        raise ConfigError(
            f"group {name!r}: {size} ranks cannot be divided into blocks of {block}; use a divisor of {size}"
        )
    first = rank - rank % block
    if kind == "intra":
        return tuple(range(first, first + block))
    if kind == "leaders" and rank != first:
        return (rank,)
    return tuple(range(rank - first, size, block))


def distinct_groups(name: str, size: int) -> list[tuple[int, ...]]:
    """All groups of this name, each once."""
    groups: list[tuple[int, ...]] = []
    assigned: set[int] = set()
    for rank in range(size):
        if rank not in assigned:
            groups.append(members(name, rank, size))
            assigned.update(groups[-1])
    return groups


def as_range(ranks: Sequence[int]) -> tuple[int, int, int]:
    """First, end and step of the ranks of a group, which are evenly spaced."""
    step = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    return ranks[0], ranks[-1] + 1, step


class Group:
    """All collectives of one communicator; every rank must start the same ones in the same order."""

    def __init__(
        self,
        name: str,
        backend: Any,
        ranks: Sequence[int],
        monitor: RankMonitor,
        timeouts: Timeouts,
        shm: ShmCollectives | None = None,
    ) -> None:
        self.name = name
        self.ranks = tuple(ranks)
        self.size = len(self.ranks)
        self.range = as_range(self.ranks)
        self.monitor, self.timeouts = monitor, timeouts
        self._backend = backend
        self.shm = shm
        """Set if all ranks are on one host: tensors are reduced through shared memory."""
        self._reduce = {name: _options(dist.AllreduceOptions, reduceOp=op) for name, op in _OPS.items()}

    # --- asynchronous: started here, waited for later -------------------------------------------------

    def start_all_reduce(self, tensor: torch.Tensor, op: str = "sum", what: str = "") -> Work:
        """Start to reduce the tensor over the ranks, in place: "sum", "max" or "min"."""
        return self.start_all_reduce_coalesced([tensor], op, what)

    def start_all_reduce_coalesced(
        self, tensors: Sequence[torch.Tensor], op: str = "sum", what: str = ""
    ) -> Work:
        """Start to reduce several tensors of one dtype over the ranks in one collective, each in place."""
        if op not in self._reduce:
            raise ConfigError(f"all_reduce op={op!r}; use one of {', '.join(_OPS)}")
        if self.size == 1:
            return COMPLETED
        parts = [_flat(tensor) for tensor in tensors]
        if (shm := self._shm_for(parts[0])) is not None:
            return self._start_shm(
                "all_reduce", what, parts, lambda on_wait, number: shm.all_reduce(parts, op, on_wait, number)
            )
        flat = parts[0] if len(parts) == 1 else torch.cat(parts)
        work = self._start("all_reduce", what, flat, self._backend.allreduce, [flat], self._reduce[op])
        return work if len(parts) == 1 else Coalesced(work, flat, parts)

    def start_all_reduce_span(self, buffer: FlatBuffer, first: int, count: int, what: str = "") -> Work:
        """Start to sum a span of the ranks' flat buffers; the sum is in the same span of `buffer.result`."""
        if self.size == 1:
            return COMPLETED
        shm = self.shm
        if shm is None or buffer.segment is None:
            return self.start_all_reduce(buffer.local[first : first + count], what=what)
        buffers, result = buffer.span(first, count)

        def run(on_wait: OnWait, number: int) -> str:
            return shm.reduce_scatter(buffers, result, on_wait, number) or shm.barrier(on_wait, number)

        return self._start_shm("all_reduce", what, [result], run)

    def start_reduce_scatter_span(self, buffer: FlatBuffer, first: int, count: int, what: str = "") -> Work:
        """Start to sum this rank's shard of a span of the ranks' flat buffers; for a group with shared memory."""
        shm = self.shm
        assert shm is not None, self.name
        buffers, result = buffer.span(first, count)
        return self._start_shm(
            "reduce_scatter",
            what,
            [result],
            lambda on_wait, number: shm.reduce_scatter(buffers, result, on_wait, number),
        )

    def start_sum_shard(self, buffers: Sequence[torch.Tensor], shard: slice, what: str = "") -> Work:
        """Start to sum a shard of the ranks' flat buffers into this rank's own; for a group with shared memory."""
        shm = self.shm
        assert shm is not None, self.name
        return self._start_shm(
            "reduce_scatter",
            what,
            buffers[:1],
            lambda on_wait, number: shm.sum_shard(buffers, shard, on_wait, number),
        )

    def start_barrier(self, what: str = "", part_of: str = "barrier") -> Work:
        """Start a barrier; for a group with shared memory. `part_of`: the collective that messages name."""
        shm = self.shm
        assert shm is not None, self.name
        return self._start_shm(part_of, what, [], shm.barrier)

    def start_socket_all_reduce(self, tensor: torch.Tensor, what: str = "", op: str = "sum") -> BackendWork:
        """Start to reduce a tensor over sockets although the ranks may share memory: to measure them."""
        assert self._backend is not None, f"group {self.name!r} has one rank"
        return self._start("all_reduce", what, tensor, self._backend.allreduce, [tensor], self._reduce[op])

    def start_reduce(self, tensor: torch.Tensor, root: int, what: str = "") -> Work:
        """Start to sum the tensor over the ranks, in place on rank `root`; on the others it is undefined afterwards."""
        if self.size == 1:
            return COMPLETED
        flat, index = _flat(tensor), self.ranks.index(root)
        if (shm := self._shm_for(flat)) is not None:
            return self._start_shm(
                "reduce",
                what,
                [flat],
                lambda on_wait, number: shm.all_reduce([flat], "sum", on_wait, number, index),
            )
        options = _options(dist.ReduceOptions, reduceOp=_OPS["sum"], rootRank=index, rootTensor=0)
        return self._start("reduce", what, flat, self._backend.reduce, [flat], options)

    def start_broadcast(self, tensor: torch.Tensor, source: int = 0, what: str = "") -> Work:
        """Start to broadcast the tensor of rank `source` to every rank, in place."""
        return self.start_broadcast_coalesced([tensor], [source], what)

    def start_broadcast_coalesced(
        self, tensors: Sequence[torch.Tensor], sources: Sequence[int], what: str = ""
    ) -> Work:
        """Start to broadcast each tensor from its source rank, in place; the tensors of one source in one message."""
        if self.size == 1:
            return COMPLETED
        # As bytes: gloo supports neither bool, as masks are, nor complex numbers.
        by_source: dict[int, list[torch.Tensor]] = {}
        for tensor, source in zip(tensors, sources, strict=True):
            by_source.setdefault(self.ranks.index(source), []).append(_flat(tensor).view(torch.uint8))
        shm = self._shm_for(next(iter(by_source.values()))[0])
        if shm is not None:

            def run(on_wait: OnWait, number: int) -> str:
                mismatches = (
                    shm.broadcast(parts, index, on_wait, number) for index, parts in by_source.items()
                )
                return next(filter(None, mismatches), "")

            return self._start_shm("broadcast", what, [p for parts in by_source.values() for p in parts], run)
        return AllOf([self._broadcast(parts, index, what) for index, parts in by_source.items()])

    def _broadcast(self, parts: list[torch.Tensor], index: int, what: str) -> Work:
        flat = parts[0] if len(parts) == 1 else torch.cat(parts)
        options = _options(dist.BroadcastOptions, rootRank=index, rootTensor=0)
        work = self._start("broadcast", what, flat, self._backend.broadcast, [flat], options)
        return work if len(parts) == 1 else Coalesced(work, flat, parts)

    def start_all_gather(self, tensor: torch.Tensor, gathered: torch.Tensor, what: str = "") -> Work:
        """Start to gather the tensors of all ranks, of one size, into the rows of `gathered`, in rank order."""
        rows = list(gathered)
        if self.size == 1:
            rows[0].copy_(tensor)
            return COMPLETED
        if (shm := self._shm_for(tensor.view(torch.uint8))) is None:
            return self._start("all_gather", what, tensor, self._backend.allgather, [rows], [tensor])
        local, parts = tensor.view(torch.uint8), [row.view(torch.uint8) for row in rows]
        return self._start_shm(
            "all_gather",
            what,
            [gathered],
            lambda on_wait, number: shm.all_gather(local, parts, on_wait, number),
        )

    # --- blocking -------------------------------------------------------------------------------------

    def all_reduce(self, tensor: torch.Tensor, op: str = "sum", what: str = "") -> torch.Tensor:
        """Reduce the tensor over the ranks, in place."""
        self.start_all_reduce(tensor, op, what).wait()
        return tensor

    def broadcast(self, tensor: torch.Tensor, source: int = 0, what: str = "") -> torch.Tensor:
        """Broadcast the tensor of rank `source` to every rank, in place."""
        self.start_broadcast(tensor, source, what).wait()
        return tensor

    def all_gather(self, tensor: torch.Tensor, what: str = "") -> list[torch.Tensor]:
        """Gather the tensors of all ranks, in rank order; they must have the same shape."""
        if self.size == 1:
            return [tensor.clone()]
        tensor = tensor.contiguous()
        gathered = [torch.empty_like(tensor) for _ in self.ranks]
        self._start("all_gather", what, tensor, self._backend.allgather, [gathered], [tensor]).wait()
        return gathered

    def all_gather_rows(self, tensor: torch.Tensor, what: str = "") -> torch.Tensor:
        """Concatenate the tensors of all ranks; their first dimensions may differ and may be 0."""
        return torch.cat(self._gather_rows(tensor, what))

    def all_gather_bytes(self, data: bytes, what: str = "") -> list[bytes]:
        """Gather the bytes of all ranks, in rank order."""
        local = torch.from_numpy(np.frombuffer(data, np.uint8).copy())
        return [part.numpy().tobytes() for part in self._gather_rows(local, what)]

    def _gather_rows(self, tensor: torch.Tensor, what: str) -> list[torch.Tensor]:
        """Gather the tensors of all ranks; shorter ones are padded for the transfer."""
        num_rows = torch.tensor([tensor.shape[0]], device=tensor.device)
        counts = [int(count) for count in self.all_gather(num_rows, f"{what} (number of rows)")]
        padded = tensor.new_zeros((max(counts), *tensor.shape[1:]))
        padded[: tensor.shape[0]] = tensor
        parts = self.all_gather(padded, what) if max(counts) else [padded] * self.size
        return [part[:count] for part, count in zip(parts, counts, strict=True)]

    def barrier(self, what: str = "") -> None:
        """Block until every rank has called it."""
        if self.size > 1:
            dummy = torch.zeros(1)
            self._start("barrier", what, dummy, self._backend.allreduce, [dummy], self._reduce["sum"]).wait()

    # --- transports -----------------------------------------------------------------------------------

    def _shm_for(self, tensor: torch.Tensor) -> ShmCollectives | None:
        return self.shm if tensor.dtype in DTYPES else None

    def _start_shm(
        self, collective: str, what: str, tensors: Sequence[torch.Tensor], run: Callable[[OnWait, int], str]
    ) -> Work:
        return ShmWork(self, collective, what, sum(t.nbytes for t in tensors), run)

    def _start(self, collective: str, what: str, tensor: torch.Tensor, start: Any, *args: Any) -> BackendWork:
        return BackendWork(self, collective, what, tensor.nbytes, lambda: start(*args))

    def next_number(self, what: str) -> int:
        """The sequence number of the collective that is started now."""
        if self.monitor.failed_step:
            raise CollectiveError(
                f"{what or 'a collective'} (group {self.name!r}) cannot be started: a step of this rank failed "
                f"halfway ({self.monitor.failed_step}), so the ranks are out of step; exit, and resume from a "
                "checkpoint"
            )
        started = self.monitor.local.started
        started[self.name] = started.get(self.name, 0) + 1
        return started[self.name]

    def record_start(self, collective: str, what: str, number: int, nbytes: int) -> TracedCollective | None:
        """Record the start of a collective in the trace; None if tracing is off."""
        return record_start(collective, what, self.name, number, nbytes)

    # --- missing and failed ranks ---------------------------------------------------------------------

    def process_exit_error(self, here: str, rank: int) -> CollectiveError:
        """The error for a rank of this host whose process has exited, with its outcome if it published one."""
        status = self.monitor.poll(watched=[rank]).get(rank)
        if status is not None and status.outcome:
            return exited_error(self.monitor, rank, here, status)
        if rank == 0 and self.monitor.store_lost:
            return store_lost_error(here)
        return _connection_lost(here, [rank], f"the process of rank {rank} has exited")

    def backend_error(self, here: str, error: Exception) -> CollectiveError:
        """The error for a failure of the backend in the collective `here`, with the rank that caused it.

        A rank that exits publishes its outcome before its sockets close.
        """
        if "scalar type" in str(error):
            return CollectiveError(
                f"{here}: the backend does not support tensors of this dtype ({_reason(error)}); convert it, for "
                "example to int32 or float32"
            )
        before, deadline = self.monitor.poll(), time.monotonic() + _HEARTBEATS * self.monitor.status_age_s
        while True:
            statuses = self.monitor.poll()
            if self.monitor.store_lost:
                return store_lost_error(here)
            # A rank that exited because it had lost another one is not the cause: it sorts last.
            exited = sorted((is_consequence(s.outcome), rank) for rank, s in statuses.items() if s.outcome)
            unresponsive = self.monitor.unresponsive(before)
            if len(unresponsive) == 1 or (exited and not exited[0][0]) or time.monotonic() > deadline:
                break
            time.sleep(0.1)  # the heartbeats of the ranks that are alive change meanwhile
        if exited and (not exited[0][0] or not unresponsive):
            return exited_error(self.monitor, exited[0][1], here, statuses[exited[0][1]])
        # Gloo connects two ranks in their first collective.
        is_first = self.monitor.local.started.get(self.name, 0) == 1
        return _connection_lost(here, unresponsive, _reason(error), _NETWORK if is_first else "")

    def missing(self, number: int, watched: Sequence[int] = ()) -> list[int]:
        """The ranks that have not started the collective with this sequence number, by their last status.

        `watched`: see `RankMonitor.poll`.
        """
        self.monitor.poll(watched=watched)
        return self.monitor.behind(self.ranks, self.name, number)

    def describe(self, collective: str, what: str) -> str:
        """A collective that is started now, for messages: its tensor, group and step."""
        step = self.monitor.local.step + 1
        return f"{collective}{f' of {what!r}' if what else ''} (group {self.name!r}, step {step})"


def _connection_lost(here: str, ranks: list[int], reason: str, advice: str = "") -> PeerLostError:
    lost = " or ".join(f"rank {rank}" for rank in ranks) or "one of the ranks"
    cause = f"it was killed, or its host is down; see its log{advice}"
    message = f"{here}: lost the connection to {lost} ({reason}); {cause}"
    return PeerLostError(message, ranks, "lost")


def _reason(error: Exception) -> str:
    """Gloo's message without its source location and its advice."""
    return re.sub(r"^\[[^]]*\] ", "", str(error)).split(". This is ")[0]


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a vector, in memory order, which is the same on all ranks."""
    tensor = tensor.detach()
    if not torch.ops.aten.is_non_overlapping_and_dense.default(tensor):
        raise CollectiveError(
            f"a tensor of shape {list(tensor.shape)} and strides {list(tensor.stride())} has gaps; "
            "collectives work in place: make it contiguous"
        )
    return tensor.as_strided((tensor.numel(),), (1,))


def _options(kind: Any, **fields: Any) -> Any:
    options = kind()
    for name, value in fields.items():
        setattr(options, name, value)
    return options

"""A named group of ranks and its collectives: start one, go on, wait for it.

pending = group.start_all_reduce(gradient, what="fc_0.w_0@GRAD")
…                                              compute
pending.wait()                                 gradient now holds the sum
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

from argosy.engine.collective import exchanges
from argosy.engine.collective.absent import Patience, ended, store_is_gone
from argosy.engine.collective.exchanges import Exchange
from argosy.engine.collective.flat_buffer import FlatBuffer
from argosy.engine.collective.host_plane import DTYPES, HostPlane, Idle
from argosy.engine.collective.pending import DONE, InBackend, InOneBuffer, OnPlane, Pending, Together
from argosy.engine.collective.watch import Watch
from argosy.engine.errors import CollectiveError, ConfigError, PeerLostError

_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
_SUSPECT_S = 3.0
"""How long after a broken connection to find out which of several ranks has died: three beats."""


class Group:
    """All collectives of one communicator; every rank must start the same ones in the same order."""

    def __init__(
        self,
        name: str,
        backend: Any,
        ranks: Sequence[int],
        watch: Watch,
        patience: Patience,
        plane: HostPlane | None = None,
    ) -> None:
        self.name = name
        self.ranks = tuple(ranks)
        self.size = len(self.ranks)
        self.watch, self.patience = watch, patience
        self._backend = backend
        self.plane = plane
        """Set if all ranks are on one host: tensors go through shared memory."""
        self._reduce = {name: _options(dist.AllreduceOptions, reduceOp=op) for name, op in _OPS.items()}

    # --- started, and waited for later ----------------------------------------------------------------

    def start_all_reduce(self, tensor: torch.Tensor, op: str = "sum", what: str = "") -> Pending:
        """Begin to combine the tensor over the ranks, in place: "sum", "max" or "min"."""
        return self.start_all_reduce_of([tensor], op, what)

    def start_all_reduce_of(
        self, tensors: Sequence[torch.Tensor], op: str = "sum", what: str = ""
    ) -> Pending:
        """Begin to combine several tensors of one dtype over the ranks in one exchange, each in place."""
        if op not in self._reduce:
            raise ConfigError(f"all_reduce op={op!r}; use one of {', '.join(_OPS)}")
        if self.size == 1:
            return DONE
        parts = [_flat(tensor) for tensor in tensors]
        if (plane := self._plane_for(parts[0])) is not None:
            return self._on_plane(
                "all_reduce", what, parts, lambda idle, number: plane.all_reduce(parts, op, idle, number)
            )
        flat = parts[0] if len(parts) == 1 else torch.cat(parts)
        started = self._start("all_reduce", what, flat, self._backend.allreduce, [flat], self._reduce[op])
        return started if len(parts) == 1 else InOneBuffer(started, flat, parts)

    def start_all_reduce_span(self, buffer: FlatBuffer, first: int, count: int, what: str = "") -> Pending:
        """Begin to add up a part of the ranks' flat buffers; the sum is in the same part of `buffer.result`."""
        if self.size == 1:
            return DONE
        plane = self.plane
        if plane is None or buffer.shared is None:
            return self.start_all_reduce(buffer.own[first : first + count], what=what)
        parts, result = spans(buffer, first, count)

        def run(idle: Idle, number: int) -> str:
            return plane.sum_share(parts, result, idle, number) or plane.meet(idle, number)

        return self._on_plane("all_reduce", what, [result], run)

    def start_sum_share(self, buffer: FlatBuffer, first: int, count: int, what: str = "") -> Pending:
        """Begin to add up this rank's share of a part of the ranks' flat buffers; for a group with a plane."""
        plane = self.plane
        assert plane is not None, self.name
        parts, result = spans(buffer, first, count)
        return self._on_plane(
            "reduce_scatter",
            what,
            [result],
            lambda idle, number: plane.sum_share(parts, result, idle, number),
        )

    def start_meeting(self, what: str = "") -> Pending:
        """Begin a barrier on the plane."""
        plane = self.plane
        assert plane is not None, self.name
        return self._on_plane("barrier", what, [], plane.meet)

    def start_reduce(self, tensor: torch.Tensor, root: int, what: str = "") -> Pending:
        """Begin to add up the tensor over the ranks, in place on rank `root`; on the others it is lost."""
        if self.size == 1:
            return DONE
        flat, place = _flat(tensor), self.ranks.index(root)
        if (plane := self._plane_for(flat)) is not None:
            return self._on_plane(
                "reduce",
                what,
                [flat],
                lambda idle, number: plane.all_reduce([flat], "sum", idle, number, place),
            )
        options = _options(dist.ReduceOptions, reduceOp=_OPS["sum"], rootRank=place, rootTensor=0)
        return self._start("reduce", what, flat, self._backend.reduce, [flat], options)

    def start_broadcast(self, tensor: torch.Tensor, source: int = 0, what: str = "") -> Pending:
        """Begin to give every rank the tensor of rank `source`, in place."""
        return self.start_broadcast_of([tensor], [source], what)

    def start_broadcast_of(
        self, tensors: Sequence[torch.Tensor], sources: Sequence[int], what: str = ""
    ) -> Pending:
        """Begin to give every rank each tensor as its source has it, in place; one message for each source."""
        if self.size == 1:
            return DONE
        # As bytes: gloo knows neither bool, as masks are, nor complex numbers.
        by_source: dict[int, list[torch.Tensor]] = {}
        for tensor, source in zip(tensors, sources, strict=True):
            by_source.setdefault(self.ranks.index(source), []).append(_flat(tensor).view(torch.uint8))
        plane = self._plane_for(next(iter(by_source.values()))[0])
        if plane is not None:

            def run(idle: Idle, number: int) -> str:
                found = (plane.broadcast(p, place, idle, number) for place, p in by_source.items())
                return next(filter(None, found), "")

            return self._on_plane("broadcast", what, [p for parts in by_source.values() for p in parts], run)
        return Together([self._broadcast(parts, place, what) for place, parts in by_source.items()])

    def _broadcast(self, parts: list[torch.Tensor], place: int, what: str) -> Pending:
        flat = parts[0] if len(parts) == 1 else torch.cat(parts)
        options = _options(dist.BroadcastOptions, rootRank=place, rootTensor=0)
        started = self._start("broadcast", what, flat, self._backend.broadcast, [flat], options)
        return started if len(parts) == 1 else InOneBuffer(started, flat, parts)

    # --- at once --------------------------------------------------------------------------------------

    def all_reduce(self, tensor: torch.Tensor, op: str = "sum", what: str = "") -> torch.Tensor:
        """Combine the tensor over the ranks, in place."""
        self.start_all_reduce(tensor, op, what).wait()
        return tensor

    def broadcast(self, tensor: torch.Tensor, source: int = 0, what: str = "") -> torch.Tensor:
        """Give every rank the tensor of rank `source`, in place."""
        self.start_broadcast(tensor, source, what).wait()
        return tensor

    def all_gather(self, tensor: torch.Tensor, what: str = "") -> list[torch.Tensor]:
        """The tensors of all ranks in the order of the ranks; they have the same shape."""
        if self.size == 1:
            return [tensor.clone()]
        tensor = tensor.contiguous()
        found = [torch.empty_like(tensor) for _ in self.ranks]
        self._start("all_gather", what, tensor, self._backend.allgather, [found], [tensor]).wait()
        return found

    def all_gather_rows(self, tensor: torch.Tensor, what: str = "") -> torch.Tensor:
        """The tensors of all ranks behind each other; their first sizes may differ and may be 0."""
        return torch.cat(self._gather_rows(tensor, what))

    def all_gather_bytes(self, data: bytes, what: str = "") -> list[bytes]:
        """The bytes of all ranks in the order of the ranks."""
        mine = torch.from_numpy(np.frombuffer(data, np.uint8).copy())
        return [part.numpy().tobytes() for part in self._gather_rows(mine, what)]

    def _gather_rows(self, tensor: torch.Tensor, what: str) -> list[torch.Tensor]:
        """The tensors of all ranks; a shorter one travels with rows that are cut off again."""
        own = torch.tensor([tensor.shape[0]], device=tensor.device)
        counts = [int(count) for count in self.all_gather(own, f"{what} (how many)")]
        padded = tensor.new_zeros((max(counts), *tensor.shape[1:]))
        padded[: tensor.shape[0]] = tensor
        parts = self.all_gather(padded, what) if max(counts) else [padded] * self.size
        return [part[:count] for part, count in zip(parts, counts, strict=True)]

    def barrier(self, what: str = "") -> None:
        """Return when every rank has come."""
        if self.size > 1:
            nothing = torch.zeros(1)
            self._start(
                "barrier", what, nothing, self._backend.allreduce, [nothing], self._reduce["sum"]
            ).wait()

    # --- how ------------------------------------------------------------------------------------------

    def _plane_for(self, tensor: torch.Tensor) -> HostPlane | None:
        return self.plane if tensor.dtype in DTYPES else None

    def _on_plane(
        self, collective: str, what: str, tensors: Sequence[torch.Tensor], run: Callable[[Idle, int], str]
    ) -> Pending:
        return OnPlane(self, collective, what, sum(t.nbytes for t in tensors), run)

    def _start(self, collective: str, what: str, tensor: torch.Tensor, start: Any, *args: Any) -> Pending:
        return InBackend(self, collective, what, tensor.nbytes, lambda: start(*args))

    def next_number(self, what: str) -> int:
        """The number of the collective that is started now."""
        if self.watch.broken:
            raise CollectiveError(
                f"{what or 'a collective'} (group {self.name!r}) cannot be exchanged: a step of this rank failed "
                f"halfway ({self.watch.broken}), so the ranks are out of step; end this process, and go on from a "
                "checkpoint"
            )
        started = self.watch.own.started
        started[self.name] = started.get(self.name, 0) + 1
        return started[self.name]

    def note_start(self, collective: str, what: str, number: int, nbytes: int) -> Exchange | None:
        """A line of the timeline, if one is recorded."""
        return exchanges.note_start(collective, what, self.name, number, nbytes)

    # --- when it takes long ---------------------------------------------------------------------------

    def lost(self, collective: str, what: str, error: Exception) -> CollectiveError:
        """A connection broke: say which rank is gone. An ending process tells so before its sockets close."""
        here = self.described(collective, what)
        if "scalar type" in str(error):
            return CollectiveError(
                f"{here}: the backend cannot exchange tensors of this dtype ({_reason(error)}); convert it, for "
                "example to int32 or float32"
            )
        before, until = self.watch.look(), time.monotonic() + _SUSPECT_S
        while True:
            told = self.watch.look()
            if self.watch.store_is_gone:
                return store_is_gone(here)
            # Who ended because it had lost a rank is not the cause.
            ends = sorted((_is_consequence(t.end), rank) for rank, t in told.items() if t.end)
            still = [r for r, t in told.items() if not t.end and t.beat == before[r].beat]
            if len(still) == 1 or (ends and not ends[0][0]) or time.monotonic() > until:
                break
            time.sleep(0.1)  # the others' beats go on meanwhile
        if ends and (not ends[0][0] or not still):
            return ended(self.watch, ends[0][1], here, told[ends[0][1]])
        gone = " or ".join(f"rank {rank}" for rank in still) or "one of the ranks"
        return PeerLostError(
            f"{here}: the connection to {gone} broke ({_reason(error)}); it was killed, or its host is gone; see "
            "its log"
        )

    def missing(self, number: int) -> list[int]:
        """The ranks that have not started this collective, as far as they have told."""
        told = self.watch.look()
        others = [rank for rank in self.ranks if rank != self.watch.rank]
        return [r for r in others if r not in told or told[r].started.get(self.name, 0) < number]

    def described(self, collective: str, what: str) -> str:
        """A collective for messages: what it is of, its group, the step."""
        step = self.watch.own.step + 1
        return f"{collective}{f' of {what!r}' if what else ''} (group {self.name!r}, step {step})"


def spans(buffer: FlatBuffer, first: int, count: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    """A part of every rank's flat buffer, and of the result."""
    here = slice(first, first + count)
    return [part[here] for part in buffer.parts], buffer.result[here]


def _is_consequence(end: str) -> bool:
    return end.startswith(PeerLostError.__name__)


def _reason(error: Exception) -> str:
    """Gloo's message without the place in its source and its advice."""
    return re.sub(r"^\[[^]]*\] ", "", str(error)).split(". This is ")[0]


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a vector; the order of the elements is that of memory, the same on all ranks."""
    tensor = tensor.detach()
    if not torch.ops.aten.is_non_overlapping_and_dense.default(tensor):
        raise CollectiveError(
            f"a tensor of shape {list(tensor.shape)} and strides {list(tensor.stride())} has gaps; "
            "collectives work in place: make it contiguous"
        )
    return tensor.as_strided((tensor.numel(),), (1,))


def _options(kind: Any, **fields: Any) -> Any:
    made = kind()
    for name, value in fields.items():
        setattr(made, name, value)
    return made

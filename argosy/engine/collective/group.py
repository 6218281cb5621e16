"""A named group of ranks and its collectives: start one, go on, wait for it.

    pending = group.start_all_reduce(gradient, what="fc_0.w_0@GRAD")
    …                                              compute
    pending.wait()                                 gradient now holds the sum

A wait that takes long does not stay silent: it looks after the others every second (see watch.py) and ends
with an error that names the ranks that are missing, as soon as it is certain that they will not come.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from argosy.engine.collective.absent import Patience, ended, look_after, store_is_gone
from argosy.engine.collective.host_plane import DTYPES, HostPlane
from argosy.engine.collective.watch import Watch
from argosy.engine.errors import CollectiveError, ConfigError, PeerLostError
from argosy.engine.log import logger

_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
_SLICE = timedelta(seconds=1)
_FIRST_NOTE_S = 30.0
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
        """Set if all ranks are on one host: sums go through shared memory."""
        self._reduce = {name: _options(dist.AllreduceOptions, reduceOp=op) for name, op in _OPS.items()}

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
            return _DONE
        parts = [_flat(tensor) for tensor in tensors]
        if self.plane is not None and parts[0].dtype in DTYPES:
            return OnPlane(self, parts, op, what, self._next(what))
        flat = parts[0] if len(parts) == 1 else torch.cat(parts)
        started = self._start("all_reduce", what, self._backend.allreduce, [flat], self._reduce[op])
        return started if len(parts) == 1 else InOneBuffer(started, flat, parts)

    def start_broadcast(self, tensor: torch.Tensor, source: int = 0, what: str = "") -> Pending:
        """Begin to give every rank the tensor of rank `source`, in place."""
        if self.size == 1:
            return _DONE
        options = _options(dist.BroadcastOptions, rootRank=source, rootTensor=0)
        # As bytes: gloo knows neither bool, as masks are, nor complex numbers.
        return self._start(
            "broadcast", what, self._backend.broadcast, [_flat(tensor).view(torch.uint8)], options
        )

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
        self._start("all_gather", what, self._backend.allgather, [found], [tensor]).wait()
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
            nothing = [torch.zeros(1)]
            self._start("barrier", what, self._backend.allreduce, nothing, self._reduce["sum"]).wait()

    def _start(self, collective: str, what: str, start: Any, *arguments: Any) -> Pending:
        number = self._next(what)
        try:
            work = start(*arguments)
        except RuntimeError as e:
            raise self._lost(collective, what, e) from None
        return Pending(self, work, collective, what, number)

    def _next(self, what: str) -> int:
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

    # --- when it takes long ---------------------------------------------------------------------------

    def _lost(self, collective: str, what: str, error: Exception) -> CollectiveError:
        """A connection broke: say which rank is gone. An ending process tells so before its sockets close."""
        here = self._described(collective, what)
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

    def _missing(self, number: int) -> list[int]:
        """The ranks that have not started this collective, as far as they have told."""
        told = self.watch.look()
        others = [rank for rank in self.ranks if rank != self.watch.rank]
        return [r for r in others if r not in told or told[r].started.get(self.name, 0) < number]

    def _described(self, collective: str, what: str) -> str:
        step = self.watch.own.step + 1
        return f"{collective}{f' of {what!r}' if what else ''} (group {self.name!r}, step {step})"


class Pending:
    """A collective that was started."""

    def __init__(self, group: Group | None, work: Any, collective: str, what: str, number: int) -> None:
        self.group, self.collective, self.what, self.number = group, collective, what, number
        self._work = work
        self._note_s = _FIRST_NOTE_S

    def wait(self) -> None:
        """Return when it is done; the tensors hold the result then."""
        if self._work is None:
            return
        group = self.group
        assert group is not None, self.collective
        own = group.watch.own
        own.waiting = f"{group.name}#{self.number} {self.collective} {self.what}".rstrip()
        try:
            self._wait(group)
        finally:
            own.waiting = ""
        self._work = None

    def _wait(self, group: Group) -> None:
        began = time.monotonic()
        while True:
            try:
                self._work.wait(_SLICE)
                return
            except RuntimeError as e:
                if "timed out" not in str(e).lower() or self._work.is_completed():
                    raise group._lost(self.collective, self.what, e) from None
            self._look(group, time.monotonic() - began)

    def _look(self, group: Group, waited_s: float) -> None:
        """A second has passed: is it certain by now that somebody will not come?"""
        here = group._described(self.collective, self.what)
        missing = group._missing(self.number)
        for rank in missing:
            look_after(group.watch, rank, here, waited_s, group.patience)
        if waited_s > self._note_s:
            names = ", ".join(map(str, missing)) or "(all have joined)"
            logger.warning("%s: waiting since %.0f s for rank %s", here, waited_s, names)
            self._note_s *= 2


class OnPlane(Pending):
    """A sum on the host plane. It is made in `wait`: there is no processor beside the ranks' own to do it."""

    def __init__(self, group: Group, tensors: list[torch.Tensor], op: str, what: str, number: int) -> None:
        super().__init__(group, tensors, "all_reduce", what, number)
        self._op = op

    def _wait(self, group: Group) -> None:
        assert group.plane is not None, self.collective
        began = time.monotonic()

        def idle(rank: int) -> None:
            assert group.plane is not None, self.collective
            if group.plane.has_ended(rank):
                gone = ConnectionError(f"the process of rank {rank} is gone")
                raise group._lost(self.collective, self.what, gone)
            waited_s = time.monotonic() - began
            self._look(group, waited_s)
            here = group._described(self.collective, self.what)
            look_after(group.watch, rank, here, waited_s, group.patience)  # started or not, it is not here

        if differing := group.plane.all_reduce(self._work, self._op, idle, self.number):
            raise CollectiveError(
                f"{group._described(self.collective, self.what)}: {differing}; all ranks must exchange the same "
                "tensors in the same order"
            )


class InOneBuffer(Pending):
    """A sum of several tensors that travel in one buffer."""

    def __init__(self, started: Pending, flat: torch.Tensor, parts: list[torch.Tensor]) -> None:
        super().__init__(started.group, started, started.collective, started.what, started.number)
        self._flat, self._parts = flat, parts

    def _wait(self, group: Group) -> None:
        self._work.wait()
        torch._foreach_copy_(self._parts, list(self._flat.split([part.numel() for part in self._parts])))


_DONE = Pending(None, None, "", "", 0)


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

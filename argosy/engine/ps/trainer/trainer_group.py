"""The trainers of a job as a process group: collectives for fleet.util, over the servers."""

# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import torch
from torch import Tensor

from argosy.engine.errors import ArgosyError
from argosy.engine.ps import messages
from argosy.engine.ps.rpc.link import PendingReply, Reply
from argosy.engine.ps.trainer.connection import Connection, Tensors

_REDUCERS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum": torch.sum,
    "max": torch.amax,
    "min": torch.amin,
}


class TrainerGroup:
    """Collectives of all live trainers: they do not wait for trainers that were dropped."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._numbers: Counter[str] = Counter()

    @property
    def size(self) -> int:
        return self._connection.plan.trainers

    @property
    def rank(self) -> int:
        return self._connection.number

    def all_gather_bytes(self, mine: bytes, what: str) -> list[bytes]:
        """The bytes of every trainer, in order."""
        return [part[0].numpy().tobytes() for part in self._all_gather(what, [_tensor(mine)])]

    def all_reduce(self, tensor: Tensor, mode: str = "sum", what: str = "") -> Tensor:
        """The sum, max or min over the trainers, added in the order of their numbers."""
        return _REDUCERS[mode](torch.stack([part[0] for part in self._all_gather(what, [tensor])]), 0)

    def barrier(self, what: str) -> None:
        """Return when every trainer has joined."""
        self._all_gather(what)

    def all_to_all(self, parts: Sequence[bytes]) -> list[bytes]:
        """Send part i to trainer i; returns the parts for this trainer, by sender. All trainers call it together."""
        number, servers = self._next_number("all_to_all"), len(self._connection.servers)
        sends = [
            self._connection.start(to % servers, messages.Send(number, to), [_tensor(part)])
            for to, part in enumerate(parts)
        ]
        with self.excluded():
            recv = self._connection.start(self.rank % servers, messages.Recv(number))
            received = recv.wait(f"all-to-all {number}")
            self._join("all_to_all done", self._next_number("all_to_all done"))
        for send in sends:  # all trainers have received their data
            send.cancel()
        return [tensor.numpy().tobytes() for tensor in received.tensors]

    def _all_gather(self, name: str, tensors: Tensors = ()) -> list[list[Tensor]]:
        """The tensors of every trainer, in order. All trainers call it, in the same order."""
        number = self._next_number(name)
        reply = self._result(name, number) if self._is_synchronous else None
        if reply is None:
            with self.excluded():
                reply = self._join(name, number, tensors)
        else:
            self._join("back", self._next_number("back"))
        parts = iter(reply.tensors)
        return [[next(parts).clone() for _ in range(count)] for count in reply.meta["counts"]]

    @property
    def _is_synchronous(self) -> bool:
        return self._connection.plan.is_synchronous and self.size > 1

    def _result(self, name: str, number: int) -> Reply | None:
        """The result of an all-gather that a previous incarnation of this trainer has joined; None if it is pending.

        Excluding this trainer for a completed all-gather would let the others do steps without it, on some servers.
        """
        reply = self._connection.start(0, messages.AllGatherResult(name, number)).wait(name)
        return None if reply.meta["counts"] is None else reply

    def _join(self, name: str, number: int, tensors: Tensors = ()) -> Reply:
        message = messages.AllGather(name, number)
        return self._connection.start(0, message, [t.contiguous() for t in tensors]).wait(name)

    def _next_number(self, name: str) -> int:
        self._numbers[name] += 1
        return self._numbers[name] - 1

    @contextmanager
    def excluded(self) -> Iterator[None]:
        """Inside, steps do not wait for this trainer: trainers with more batches continue."""
        if not self._is_synchronous:
            yield
            return
        pending = [self._connection.start(server, messages.Pause()) for server in self._connection.servers]
        try:
            yield
        except BaseException:
            with suppress(ArgosyError):  # after any error steps must wait for this trainer again
                self._return(pending)
            raise
        self._return(pending)
        # The first trainer that is back must not do a step while the others are still excluded.
        self._join("back", self._next_number("back"))

    def _return(self, pending: Sequence[PendingReply]) -> None:
        """Register again: steps wait for this trainer again.

        The servers have replied to the hello, so the pauses are over. Their replies are not awaited: a server that was
        restarted after its hello would take a repeated pause for a new one.
        """
        self._connection.hello()
        for reply in pending:
            reply.cancel()


def _tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data) or bytearray(1), dtype=torch.uint8)[: len(data)]

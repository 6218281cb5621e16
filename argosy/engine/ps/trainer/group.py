"""The trainers of a job as a group that meets on the servers: what fleet.util needs of a collective group."""

# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from argosy.engine.ps import messages
from argosy.engine.ps.rpc.reply import Answer
from argosy.engine.ps.trainer.connection import Connection, Tensors

_REDUCERS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum": torch.sum,
    "max": torch.amax,
    "min": torch.amin,
}


class TrainerGroup:
    """A dead trainer that was dropped is not waited for; the results are of those who came."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._met: Counter[str] = Counter()

    @property
    def size(self) -> int:
        return self._connection.plan.trainers

    @property
    def rank(self) -> int:
        return self._connection.number

    def all_gather_bytes(self, mine: bytes, what: str) -> list[bytes]:
        """The bytes of every trainer, in order."""
        return [found[0].numpy().tobytes() for found in self._meet(what, [_tensor(mine)])]

    def all_reduce(self, tensor: Tensor, mode: str = "sum", what: str = "") -> Tensor:
        """The sum, max or min over the trainers, added in the order of their numbers."""
        return _REDUCERS[mode](torch.stack([found[0] for found in self._meet(what, [tensor])]), 0)

    def barrier(self, what: str) -> None:
        """Return when every trainer has come."""
        self._meet(what)

    def exchange(self, parts: Sequence[bytes]) -> list[bytes]:
        """Part i goes to trainer i; gives what each had for this one. All trainers call it together."""
        number, servers = self._number("exchange"), len(self._connection.servers)
        posts = [
            self._connection.start(to % servers, messages.Post(number, to), [_tensor(part)])
            for to, part in enumerate(parts)
        ]
        with self._away():
            take = self._connection.start(self.rank % servers, messages.Take(number))
            found = take.wait(f"exchange {number}")
            self._join("exchanged")
        for post in posts:  # all have what is theirs
            post.forget()
        return [tensor.numpy().tobytes() for tensor in found.tensors]

    def _meet(self, name: str, tensors: Tensors = ()) -> list[list[Tensor]]:
        """Give tensors, get those of every trainer, in order. All trainers must call it, in the same order."""
        with self._away():
            answer = self._join(name, tensors)
        parts = iter(answer.tensors)
        return [[next(parts).clone() for _ in range(count)] for count in answer.meta["counts"]]

    def _join(self, name: str, tensors: Tensors = ()) -> Answer:
        message = messages.Meet(name, self._number(name))
        return self._connection.start(0, message, [t.contiguous() for t in tensors]).wait(name)

    def _number(self, name: str) -> int:
        self._met[name] += 1
        return self._met[name] - 1

    @contextmanager
    def _away(self) -> Iterator[None]:
        """While this trainer waits in a meeting, trainers with more batches do their steps without it."""
        if not self._connection.plan.is_in_step or self.size == 1:
            yield
            return
        replies = [self._connection.start(server, messages.Pause()) for server in self._connection.servers]
        yield
        self._connection.greet()
        for reply in replies:
            reply.wait("the end of a meeting")
        self._join("back")  # who is back early must not do a step while the others are still away


def _tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data) or bytearray(1), dtype=torch.uint8)[: len(data)]

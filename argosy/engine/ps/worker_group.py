"""The trainers of a job as a group that meets on server 0: what fleet.util needs of a collective group."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import torch
from torch import Tensor

from argosy.engine.ps.trainer import Trainer

_REDUCERS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum": torch.sum,
    "max": torch.amax,
    "min": torch.amin,
}


class WorkerGroup:
    """A dead trainer that was dropped is not waited for; the results are of those who came."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    @property
    def size(self) -> int:
        return self._trainer.plan.trainers

    @property
    def rank(self) -> int:
        return self._trainer.number

    def all_gather_bytes(self, mine: bytes, what: str) -> list[bytes]:
        """The bytes of every trainer, in order."""
        piece = torch.frombuffer(bytearray(mine) or bytearray(1), dtype=torch.uint8)[: len(mine)]
        return [found[0].numpy().tobytes() for found in self._trainer.meet(what, [piece])]

    def all_reduce(self, tensor: Tensor, mode: str = "sum", what: str = "") -> Tensor:
        """The sum, max or min over the trainers, added in the order of their numbers."""
        return _REDUCERS[mode](torch.stack([found[0] for found in self._trainer.meet(what, [tensor])]), 0)

    def barrier(self, what: str) -> None:
        """Return when every trainer has come."""
        self._trainer.meet(what)

    def exchange(self, parts: list[bytes]) -> list[bytes]:
        """Part i goes to trainer i; gives what each had for this one."""
        return self._trainer.exchange(parts)

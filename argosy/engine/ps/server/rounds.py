"""The steps of a synchronous job: gradients are kept until every live trainer has sent all of its own.

    step 7    trainer 0   w.block0, b, rows of table ids   barrier
              trainer 1   w.block0, b                       barrier     ─▶ complete: mean over the two, in this order
              trainer 2   (dropped: nobody waits for it)

The mean is taken in the order of the trainers' numbers, whatever the order of arrival, so that runs repeat bit
for bit.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor

from argosy.engine.ps.rpc.listener import Request
from argosy.engine.ps.table.table import merge_rows


@dataclass
class Contribution:
    """What one trainer has sent of a step."""

    client: str
    """The life of the trainer; if it is started anew, what an earlier life has begun counts for nothing."""
    gradients: dict[str, Tensor] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    rows: dict[str, list[tuple[Tensor, Tensor]]] = field(default_factory=dict)
    row_rates: dict[str, float] = field(default_factory=dict)
    pushes: int = 0
    """How many messages have come."""
    wanted: int | None = None
    """How many there are, once the barrier has said it."""
    waiting: list[Request] = field(default_factory=list)
    """To be answered when the step is done."""

    @property
    def is_complete(self) -> bool:
        return self.wanted is not None and self.pushes >= self.wanted


@dataclass
class Update:
    """The mean of a step: what is applied, and written to the journal."""

    step: int
    gradients: dict[str, Tensor]
    rates: dict[str, float]
    """Of each block, as the first live trainer has it."""
    rows: dict[str, tuple[Tensor, Tensor]]
    row_rates: dict[str, float]
    norms: list[Tensor] = field(default_factory=list)
    """Of a step that was done before: the sums over the servers that it was done with."""


class Round:
    """One step under way."""

    def __init__(self, step: int) -> None:
        self.step = step
        self._by_trainer: dict[int, Contribution] = {}

    def of(self, trainer: int, client: str) -> Contribution:
        """What a trainer has sent so far."""
        found = self._by_trainer.get(trainer)
        if found is None or found.client != client:
            found = self._by_trainer[trainer] = Contribution(client)
        return found

    def forget(self, trainer: int) -> None:
        """Drop what a trainer has begun and not completed."""
        found = self._by_trainer.get(trainer)
        if found is not None and not found.is_complete:
            del self._by_trainer[trainer]

    def has_all_of(self, trainer: int) -> bool:
        found = self._by_trainer.get(trainer)
        return found is not None and found.is_complete

    def missing(self, live: Iterable[int]) -> list[int]:
        """The live trainers that have not sent all."""
        return sorted(trainer for trainer in live if not self.has_all_of(trainer))

    def is_ready(self, live: Iterable[int]) -> bool:
        """True if all live trainers have sent all, and there is something to do."""
        return not self.missing(live) and any(one.is_complete for one in self._by_trainer.values())

    def waiting(self) -> list[Request]:
        return [request for one in self._by_trainer.values() for request in one.waiting]

    def update(self) -> Update:
        """The mean over the trainers that have sent all."""
        parts = [part for _, part in sorted(self._by_trainer.items()) if part.is_complete]
        share = 1.0 / len(parts)
        names = dict.fromkeys(name for part in parts for name in part.gradients)
        gradients = {n: mean([p.gradients[n] for p in parts if n in p.gradients], share) for n in names}
        rates: dict[str, float] = {}
        row_rates: dict[str, float] = {}
        for part in reversed(parts):
            rates |= part.rates
            row_rates |= part.row_rates
        tables = dict.fromkeys(name for part in parts for name in part.rows)
        rows = {n: merge_rows([pair for p in parts for pair in p.rows.get(n, [])], share) for n in tables}
        return Update(self.step, gradients, rates, rows, row_rates)


def mean(parts: list[Tensor], share: float) -> Tensor:
    """The sum of the parts in their order, times the share of each."""
    if len(parts) == 1 and share == 1.0:
        return parts[0]
    total = parts[0].clone() if len(parts) == 1 else parts[0] + parts[1]
    for part in parts[2:]:
        total += part
    return total.mul_(share)

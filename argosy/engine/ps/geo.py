"""Geo-SGD: trainers train by themselves and exchange what has changed, every k steps.

    delta = (w - old) / trainers         what this trainer has learnt, its share of the mean
    old  += delta                        what the servers have of it
    server: w_s += delta
    w    += w_s - old;   old = w_s       what the others have learnt, on top of what is not sent yet

Tables the same way, row by row: a trainer keeps the rows that it has looked up, and asks for the rows that anybody
has changed since it asked last.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from argosy.engine.ps.table.table import SparseTable

if TYPE_CHECKING:
    from argosy.engine.ps.trainer import Trainer


class Snapshot:
    """The dense parameters as the servers have them, as far as this trainer knows."""

    def __init__(self) -> None:
        self.old: dict[str, Tensor] = {}

    def changes(self, params: Mapping[str, Tensor], trainers: int) -> dict[str, Tensor]:
        """This trainer's changes, which are added to `old`."""
        found = {}
        for name, value in params.items():
            delta = (value.detach() - self.old[name]).div_(trainers).contiguous()
            self.old[name].add_(delta)
            found[name] = delta
        return found

    def take(self, params: Mapping[str, Tensor], fresh: Mapping[str, Tensor]) -> None:
        """Add what the servers have more than `old`."""
        for name, value in params.items():
            value.add_(fresh[name] - self.old[name])
            self.old[name].copy_(fresh[name])


class GeoCache:
    """The rows of a table that this trainer has looked up: as it has trained them, and as the servers have them."""

    def __init__(self, trainer: Trainer, name: str) -> None:
        self._trainer, self.name = trainer, name
        spec = replace(trainer.plan.table(name), memory_rows=0)
        self._mine = SparseTable(spec, None)
        self._old = SparseTable(
            replace(spec, optimizer=replace(spec.optimizer, kind="sum", settings={})), None
        )
        self._touched: list[Tensor] = []

    def pull(self, ids: Tensor) -> Tensor:
        """The rows as trained here; those seen for the first time come from the servers."""
        new = ids[~self._mine.contains(ids)]
        if new.numel():
            rows = self._trainer.ask_rows(self.name, new)
            self._mine.assign(new, rows)
            self._old.assign(new, rows)
        return self._mine.pull(ids)

    def push(self, ids: Tensor, grads: Tensor, rate: float) -> None:
        """Train rows here."""
        self._mine.push(ids, grads, rate)
        self._touched.append(ids)

    def exchange(self) -> None:
        """Send the changes of the rows that were trained since the last time, take the others'."""
        if self._touched:
            ids = torch.unique(torch.cat(self._touched))
            self._touched = []
            delta = (self._mine.pull(ids) - self._old.pull(ids)).div_(self._trainer.plan.trainers)
            self._old.add(ids, delta)
            self._trainer.add_rows(self.name, ids, delta)
        ids, rows = self._trainer.changed_rows(self.name)
        known = self._mine.contains(ids)
        ids, rows = ids[known], rows[known]
        if ids.numel():
            self._mine.add(ids, rows - self._old.pull(ids))
            self._old.assign(ids, rows)

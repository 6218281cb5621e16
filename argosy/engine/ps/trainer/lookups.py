"""Lookups in tables that lie on the servers: each id of a batch once, the next batch while this one computes.

prefetch(ids of batch 8)  ─▶ pull_rows, held until step 7 is done ─┐
… step 7 …                                                        │
lookup(ids of batch 8)    ◀─ rows, spread over the batch ◀─────────┘
push_rows(gradients)      ─▶ those of one id added up
"""

# SPDX-License-Identifier: Apache-2.0
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from argosy.engine.ps.table.table import merge_rows
from argosy.engine.ps.trainer.connection import Connection, PerThread, Tensors
from argosy.engine.ps.trainer.geo import Geo
from argosy.engine.ps.trainer.rows import Asked, Rows

_AHEAD = 2
"""Batches that may be asked for ahead: the one that is run now, and the next."""


@dataclass(eq=False)
class _Batch:
    """The ids of a lookup: each once, and where each of the batch's ids is among them."""

    flat: Tensor
    unique: Tensor
    inverse: Tensor
    asked: Asked | None = None


@dataclass
class _UnderWay:
    """What one thread has looked up, has asked for, and has not sent yet; by table."""

    batches: dict[str, _Batch] = field(default_factory=dict)
    ahead: dict[str, list[_Batch]] = field(default_factory=lambda: defaultdict(list))
    sums: dict[str, tuple[float, list[tuple[Tensor, Tensor]]]] = field(default_factory=dict)
    """async: rate, and (ids, gradients) that are added up."""


class Lookups:
    """The tables of one trainer."""

    def __init__(self, connection: Connection, rows: Rows, geo: Geo) -> None:
        self._connection, self._rows, self._geo = connection, rows, geo
        self._under_way = PerThread(_UnderWay)
        self._is_geo = connection.plan.mode == "geo"

    def lookup(self, table: str, ids: Tensors) -> list[Tensor]:
        """The rows of these ids, each as a tensor of the shape of the ids and one dimension more."""
        mine, flat = self._under_way.mine, _flat(ids)
        known = mine.ahead[table]
        batch = next((b for b in known if torch.equal(b.flat, flat)), None)
        if batch is None:
            batch = self._start(table, flat, self._connection.next_step - 1)
        else:
            known.remove(batch)
        mine.batches[table] = batch
        found = self._geo.rows(table, batch.unique) if batch.asked is None else batch.asked.wait()
        parts = found.index_select(0, batch.inverse).split([one.numel() for one in ids])
        return [part.view(*one.shape, found.shape[1]) for part, one in zip(parts, ids, strict=True)]

    def prefetch(self, table: str, ids: Tensors) -> None:
        """Ask for the rows of the next batch now, to have them when they are looked up."""
        known = self._under_way.mine.ahead[table]
        known.append(self._start(table, _flat(ids), self._connection.next_step))
        del known[:-_AHEAD]

    def _start(self, table: str, flat: Tensor, after: int) -> _Batch:
        batch = _batch(flat)
        if not self._is_geo:
            batch.asked = self._rows.ask(table, batch.unique, after)
        return batch

    def push_rows(self, table: str, ids: Tensors, grads: Tensors, rate: float) -> None:
        """Send the gradients of the rows that were looked up, those of one id added up."""
        mine, flat = self._under_way.mine, _flat(ids)
        batch = mine.batches.pop(table, None)
        if batch is None or not torch.equal(batch.flat, flat):
            batch = _batch(flat)
        dim = self._connection.plan.table(table).dim
        given = torch.cat([grad.reshape(-1, dim) for grad in grads])
        summed = given.new_zeros(len(batch.unique), dim).index_add_(0, batch.inverse, given)
        if self._is_geo:
            self._geo.train_rows(table, batch.unique, summed, rate)
        elif self._connection.plan.merged_steps == 1:
            self._rows.push(table, batch.unique, summed, rate)
        else:
            mine.sums[table] = (rate, [*mine.sums.get(table, (rate, []))[1], (batch.unique, summed)])
            if self._connection.sends_now:
                self.send_rest([table])

    def send_rest(self, tables: Sequence[str] | None = None) -> None:
        """async: what this thread has added up and not sent yet."""
        sums = self._under_way.mine.sums
        for table in tables or list(sums):
            rate, parts = sums.pop(table)
            self._rows.push(table, *merge_rows(parts, 1.0), rate)


def _flat(ids: Tensors) -> Tensor:
    return torch.cat([torch.as_tensor(one).reshape(-1) for one in ids]).to(torch.int64)


def _batch(flat: Tensor) -> _Batch:
    unique, inverse = torch.unique(flat, return_inverse=True)
    return _Batch(flat, unique, inverse)

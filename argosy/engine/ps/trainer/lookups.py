"""Lookups in tables on the servers: each id of a batch once, the next batch prefetched while this one computes.

prefetch(ids of batch 8)  ─▶ pull_rows, deferred until step 7 is done ─┐
… step 7 …                                                        │
lookup(ids of batch 8)    ◀─ rows, spread over the batch ◀─────────┘
push_rows(gradients)      ─▶ summed by id
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
from argosy.engine.ps.trainer.table_client import PendingRows, TableClient

_AHEAD = 2
"""Prefetched batches: the current one, and the next."""


@dataclass(eq=False)
class _Batch:
    """The ids of a lookup: each once, and where each of the batch's ids is among them."""

    flat: Tensor
    unique: Tensor
    inverse: Tensor
    pending_rows: PendingRows | None = None


@dataclass
class _ThreadState:
    """The lookups, prefetches and unsent gradients of one thread, by table."""

    batches: dict[str, _Batch] = field(default_factory=dict)
    ahead: dict[str, list[_Batch]] = field(default_factory=lambda: defaultdict(list))
    sums: dict[str, tuple[float, list[tuple[Tensor, Tensor]]]] = field(default_factory=dict)
    """async: rate, and (ids, gradients) that are summed."""


class Lookups:
    """The tables of one trainer."""

    def __init__(self, connection: Connection, rows: TableClient, geo: Geo) -> None:
        self._connection, self._rows, self._geo = connection, rows, geo
        self._state = PerThread(_ThreadState)
        self._is_geo = connection.plan.mode == "geo"

    def lookup(self, table: str, ids: Tensors) -> list[Tensor]:
        """The rows of these ids, each as a tensor of the shape of the ids and one dimension more."""
        mine, flat = self._state.mine, _flat(ids)
        prefetched = mine.ahead[table]
        batch = next((b for b in prefetched if torch.equal(b.flat, flat)), None)
        if batch is None:
            batch = self._start(table, flat, self._connection.next_step - 1)
        else:
            prefetched.remove(batch)
        mine.batches[table] = batch
        rows = (
            self._geo.rows(table, batch.unique) if batch.pending_rows is None else batch.pending_rows.wait()
        )
        parts = rows.index_select(0, batch.inverse).split([part.numel() for part in ids])
        return [part.view(*shaped.shape, rows.shape[1]) for part, shaped in zip(parts, ids, strict=True)]

    def prefetch(self, table: str, ids: Tensors) -> None:
        """Start pulling the rows of the next batch."""
        prefetched = self._state.mine.ahead[table]
        prefetched.append(self._start(table, _flat(ids), self._connection.next_step))
        del prefetched[:-_AHEAD]

    def _start(self, table: str, flat: Tensor, after: int) -> _Batch:
        batch = _batch(flat)
        if not self._is_geo:
            batch.pending_rows = self._rows.start_pull(table, batch.unique, after)
        return batch

    def push_rows(self, table: str, ids: Tensors, grads: Tensors, rate: float) -> None:
        """Push the gradients of the rows that were looked up, summed by id."""
        mine, flat = self._state.mine, _flat(ids)
        batch = mine.batches.pop(table, None)
        if batch is None or not torch.equal(batch.flat, flat):
            batch = _batch(flat)
        dim = self._connection.plan.table(table).dim
        gradients = torch.cat([grad.reshape(-1, dim) for grad in grads])
        summed = gradients.new_zeros(len(batch.unique), dim).index_add_(0, batch.inverse, gradients)
        if self._is_geo:
            self._geo.train_rows(table, batch.unique, summed, rate)
        elif self._connection.plan.merged_steps == 1:
            self._rows.push(table, batch.unique, summed, rate)
        else:
            mine.sums[table] = (rate, [*mine.sums.get(table, (rate, []))[1], (batch.unique, summed)])
            if self._connection.sends_now:
                self.send_rest([table])

    def send_rest(self, tables: Sequence[str] | None = None) -> None:
        """async: push the sums that this thread has not sent yet."""
        sums = self._state.mine.sums
        for table in tables or list(sums):
            rate, parts = sums.pop(table)
            self._rows.push(table, *merge_rows(parts, 1.0), rate)


def _flat(ids: Tensors) -> Tensor:
    return torch.cat([torch.as_tensor(part).reshape(-1) for part in ids]).to(torch.int64)


def _batch(flat: Tensor) -> _Batch:
    unique, inverse = torch.unique(flat, return_inverse=True)
    return _Batch(flat, unique, inverse)

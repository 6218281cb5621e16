"""Tables on the servers: rows are pulled and pushed by id; id i is on server i mod servers.

prefetch(ids of batch 8)  ─▶ pull_rows, deferred until step 7 is done ─┐
… step 7 …                                                             │
lookup(ids of batch 8)    ◀─ rows, spread over the batch ◀─────────────┘
push_rows(gradients)      ─▶ summed by id

A batch pulls each of its ids once; the next batch is prefetched while this one computes.
"""

# SPDX-License-Identifier: Apache-2.0
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from argosy.engine.metrics import counters
from argosy.engine.ps.protocol import messages
from argosy.engine.ps.rpc.client import PendingReply
from argosy.engine.ps.table.table import merge_rows
from argosy.engine.ps.trainer.connection import PerThread, Tensors, TrainerConnection

_AHEAD = 2
"""Prefetched batches: the current one, and the next."""


@dataclass
class PendingRows:
    """Rows that are being pulled."""

    table: str
    count: int
    dim: int
    pending: list[tuple[Tensor | None, PendingReply]]
    """(positions among the ids, pending reply with their rows); None: all of them."""

    def count_prefetched(self) -> None:
        """Count which of the rows have arrived, and which are to be waited for."""
        arrived = sum(
            self.count if positions is None else len(positions)
            for positions, reply in self.pending
            if reply.is_done()
        )
        counters.prefetch_hits += arrived
        counters.prefetch_misses += self.count - arrived

    def wait(self) -> Tensor:
        """The rows, in the order of the ids."""
        what = f"rows of {self.table}"
        if len(self.pending) == 1 and self.pending[0][0] is None:
            return self.pending[0][1].wait(what).tensors[0]
        rows = torch.empty(self.count, self.dim)
        for positions, reply in self.pending:
            rows[positions] = reply.wait(what).tensors[0]
        return rows


class TableClient:
    """Pulls and pushes rows of the tables of a job. Ids must be unique."""

    def __init__(self, connection: TrainerConnection) -> None:
        self._connection = connection

    def start_pull(self, table: str, ids: Tensor, after: int = 0, create: bool = True) -> PendingRows:
        """Start pulling rows as of a step; `create`: missing rows are created."""
        message = messages.PullRows(after, table, create)
        pending = [
            (positions, self._connection.start(s, message, [part]))
            for s, positions, part in self._shards(ids)
        ]
        return PendingRows(table, len(ids), self._connection.plan.table(table).dim, pending)

    def push(self, table: str, ids: Tensor, gradients: Tensor, rate: float) -> None:
        """Push gradients of rows (geo: deltas), as a part of this step."""
        message = messages.PushRows(self._connection.next_step, table, rate)
        for server, positions, owned in self._shards(ids):
            part = gradients if positions is None else gradients[positions]
            self._connection.push(server, message, [owned, part], f"push of rows of {table}")

    def ids(self, table: str, most: int) -> Tensor:
        """All ids that have a row, sorted; RejectedError if a server has more than `most`."""
        message = messages.PullIds(table, most)
        pending = [self._connection.start(server, message) for server in self._connection.servers]
        return torch.cat([reply.wait(f"ids of {table}").tensors[0] for reply in pending]).sort().values

    def changed(self, table: str) -> tuple[Tensor, Tensor]:
        """geo: the ids and rows that were changed since the last call."""
        pending = [
            self._connection.start(server, messages.PullChanges(table)) for server in self._connection.servers
        ]
        changes = [reply.wait(f"changes of {table}").tensors for reply in pending]
        return torch.cat([ids for ids, _ in changes]), torch.cat([rows for _, rows in changes])

    def _shards(self, ids: Tensor) -> list[tuple[int, Tensor | None, Tensor]]:
        """(server, positions among the ids, ids) for each server that has some."""
        if len(self._connection.servers) == 1:
            return [(0, None, ids)]
        owner = ids.remainder(len(self._connection.servers))
        shards = [(s, (owner == s).nonzero().view(-1)) for s in self._connection.servers]
        return [(s, positions, ids[positions]) for s, positions in shards if positions.numel()]


class LocalRows(Protocol):
    """geo: the rows that a trainer trains itself."""

    def rows(self, table: str, ids: Tensor) -> Tensor:
        """The rows of these ids, as this trainer has trained them."""

    def train_rows(self, table: str, ids: Tensor, grads: Tensor, rate: float) -> None:
        """Apply gradients to rows of this trainer."""


@dataclass(eq=False)
class _Batch:
    """The ids of a lookup: each once, and where each of the batch's ids is among them."""

    flat: Tensor
    unique: Tensor
    inverse: Tensor
    pending_rows: PendingRows | None = None


@dataclass
class _SparseState:
    """The lookups, prefetches and unsent gradients of one thread, by table."""

    batches: dict[str, _Batch] = field(default_factory=dict)
    ahead: dict[str, list[_Batch]] = field(default_factory=lambda: defaultdict(list))
    sums: dict[str, tuple[float, list[tuple[Tensor, Tensor]]]] = field(default_factory=dict)
    """async: rate, and (ids, gradients) that are summed."""


class Lookups:
    """The lookups of one trainer, and the gradients of the rows that it has looked up."""

    def __init__(self, connection: TrainerConnection, rows: TableClient, local: LocalRows | None) -> None:
        """`local`: geo trains the rows in this process; the other modes on the servers."""
        self._connection, self._rows, self._local = connection, rows, local
        self._state = PerThread(_SparseState)

    def lookup(self, table: str, ids: Tensors) -> list[Tensor]:
        """The rows of these ids, each as a tensor of the shape of the ids and one dimension more."""
        local, flat = self._state.value, _flat(ids)
        prefetched = local.ahead[table]
        batch = next((b for b in prefetched if torch.equal(b.flat, flat)), None)
        if batch is None:
            batch = self._start(table, flat, self._connection.next_step - 1)
        else:
            prefetched.remove(batch)
        local.batches[table] = batch
        if self._local is not None:
            rows = self._local.rows(table, batch.unique)
        else:
            assert batch.pending_rows is not None, "the pull was started with the batch"
            batch.pending_rows.count_prefetched()
            rows = batch.pending_rows.wait()
        parts = rows.index_select(0, batch.inverse).split([part.numel() for part in ids])
        return [part.view(*shaped.shape, rows.shape[1]) for part, shaped in zip(parts, ids, strict=True)]

    def prefetch(self, table: str, ids: Tensors) -> None:
        """Start pulling the rows of the next batch."""
        prefetched = self._state.value.ahead[table]
        prefetched.append(self._start(table, _flat(ids), self._connection.next_step))
        del prefetched[:-_AHEAD]

    def _start(self, table: str, flat: Tensor, after: int) -> _Batch:
        batch = _batch(flat)
        if self._local is None:
            batch.pending_rows = self._rows.start_pull(table, batch.unique, after)
        return batch

    def push_rows(self, table: str, ids: Tensors, grads: Tensors, rate: float) -> None:
        """Push the gradients of the rows that were looked up, summed by id."""
        local, flat = self._state.value, _flat(ids)
        batch = local.batches.pop(table, None)
        if batch is None or not torch.equal(batch.flat, flat):
            batch = _batch(flat)
        dim = self._connection.plan.table(table).dim
        gradients = torch.cat([grad.reshape(-1, dim) for grad in grads])
        summed = gradients.new_zeros(len(batch.unique), dim).index_add_(0, batch.inverse, gradients)
        if self._local is not None:
            self._local.train_rows(table, batch.unique, summed, rate)
        elif self._connection.plan.merged_steps == 1:
            self._rows.push(table, batch.unique, summed, rate)
        else:
            local.sums[table] = (rate, [*local.sums.get(table, (rate, []))[1], (batch.unique, summed)])
            if self._connection.sends_now:
                self.send_rest([table])

    def send_rest(self, tables: Sequence[str] | None = None) -> None:
        """async: push the sums that this thread has not sent yet."""
        sums = self._state.value.sums
        for table in tables or list(sums):
            rate, parts = sums.pop(table)
            self._rows.push(table, *merge_rows(parts, 1.0), rate)


def _flat(ids: Tensors) -> Tensor:
    return torch.cat([torch.as_tensor(part).reshape(-1) for part in ids]).to(torch.int64)


def _batch(flat: Tensor) -> _Batch:
    unique, inverse = torch.unique(flat, return_inverse=True)
    return _Batch(flat, unique, inverse)

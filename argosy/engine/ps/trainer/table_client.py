"""Rows of tables, sharded over the servers: id i is on server i mod servers."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass

import torch
from torch import Tensor

from argosy.engine.ps import messages
from argosy.engine.ps.rpc.client import PendingReply
from argosy.engine.ps.trainer.connection import Connection


@dataclass
class PendingRows:
    """Rows that are being pulled."""

    table: str
    count: int
    dim: int
    pending: list[tuple[Tensor | None, PendingReply]]
    """(positions among the ids, pending reply with their rows); None: all of them."""

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

    def __init__(self, connection: Connection) -> None:
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
        """All ids that have a row, sorted; RefusedError if a server has more than `most`."""
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

"""Rows of tables, as they lie on the servers: id i on server i mod servers."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass

import torch
from torch import Tensor

from argosy.engine.ps import messages
from argosy.engine.ps.rpc.client import Reply
from argosy.engine.ps.trainer.connection import Connection


@dataclass
class Asked:
    """Rows that are on their way."""

    table: str
    count: int
    dim: int
    replies: list[tuple[Tensor | None, Reply]]
    """(places among the ids, answer with their rows); None: all of them."""

    def wait(self) -> Tensor:
        """The rows, in the order of the ids."""
        what = f"rows of {self.table}"
        if len(self.replies) == 1 and self.replies[0][0] is None:
            return self.replies[0][1].wait(what).tensors[0]
        rows = torch.empty(self.count, self.dim)
        for places, reply in self.replies:
            rows[places] = reply.wait(what).tensors[0]
        return rows


class Rows:
    """The tables of a job, as one trainer asks for them. Ids are given once each."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ask(self, table: str, ids: Tensor, after: int = 0, create: bool = True) -> Asked:
        """Ask for rows as they are after a step; `create`: those that are not there are made."""
        message = messages.PullRows(after, table, create)
        replies = [
            (places, self._connection.start(s, message, [part])) for s, places, part in self._shards(ids)
        ]
        return Asked(table, len(ids), self._connection.plan.table(table).dim, replies)

    def push(self, table: str, ids: Tensor, gradients: Tensor, rate: float) -> None:
        """Send gradients of rows (geo: changes), as a part of this step."""
        message = messages.PushRows(self._connection.next_step, table, rate)
        for server, places, owned in self._shards(ids):
            part = gradients if places is None else gradients[places]
            self._connection.push(server, message, [owned, part], f"push of rows of {table}")

    def changed(self, table: str) -> tuple[Tensor, Tensor]:
        """geo: the ids and rows that anybody has changed since this was called last."""
        replies = [
            self._connection.start(server, messages.PullChanges(table)) for server in self._connection.servers
        ]
        found = [reply.wait(f"changes of {table}").tensors for reply in replies]
        return torch.cat([ids for ids, _ in found]), torch.cat([rows for _, rows in found])

    def _shards(self, ids: Tensor) -> list[tuple[int, Tensor | None, Tensor]]:
        """(server, places among the ids, ids) of each server that has some."""
        if len(self._connection.servers) == 1:
            return [(0, None, ids)]
        owner = ids.remainder(len(self._connection.servers))
        found = [(s, (owner == s).nonzero().view(-1)) for s in self._connection.servers]
        return [(s, places, ids[places]) for s, places in found if places.numel()]

"""Geo-SGD: trainers train by themselves and exchange what has changed, every k steps.

    delta = (w - old) / trainers         what this trainer has learnt, its share of the mean
    old  += delta                        what the servers have of it
    server: w_s += delta
    w    += w_s - old;   old = w_s       what the others have learnt, on top of what is not sent yet

Tables the same way, row by row: a trainer keeps the rows that it has looked up, and asks for the rows that anybody
has changed since it asked last.
"""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from argosy.engine.ps.plan import Plan
from argosy.engine.ps.table.table import SparseTable
from argosy.engine.ps.trainer.blocks import Blocks
from argosy.engine.ps.trainer.connection import Connection, Tensors
from argosy.engine.ps.trainer.rows import Rows


class Geo:
    """What one trainer has changed, and the rows that it trains."""

    def __init__(self, connection: Connection, blocks: Blocks, rows: Rows) -> None:
        self._connection, self._blocks, self._rows = connection, blocks, rows
        self._old: dict[str, Tensor] = {}
        """The dense variables as the servers have them, as far as this trainer knows."""
        self._caches: dict[str, _Cache] = {}
        self._steps = 0
        self._lock = threading.RLock()

    @property
    def has_begun(self) -> bool:
        return bool(self._old)

    def begin(self, params: Mapping[str, Tensor]) -> None:
        """These are the servers' values; changes count from here."""
        self._old = {name: value.detach().clone() for name, value in params.items()}

    def step(self, params: Tensors, names: Sequence[str]) -> None:
        """After every k-th step: send what has changed here, and take what others have changed."""
        with self._lock:
            self._steps += 1
            if self._steps % self._connection.plan.k_steps == 0:
                self.exchange(dict(zip(names, params, strict=True)))

    def exchange(self, params: Mapping[str, Tensor]) -> None:
        """One exchange of changes: dense parameters, then the rows of each table."""
        self._blocks.send_changes(self._changes(params))
        fresh = {n: torch.empty_like(v, memory_format=torch.contiguous_format) for n, v in params.items()}
        self._blocks.pull(fresh)
        for name, value in params.items():
            value.add_(fresh[name] - self._old[name])
            self._old[name].copy_(fresh[name])
        for cache in self._caches.values():
            cache.exchange()
        self._connection.sent.pushes.clear()

    def _changes(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """This trainer's changes, which are added to what the servers have."""
        found = {}
        for name, value in params.items():
            delta = (value.detach() - self._old[name]).div_(self._connection.plan.trainers).contiguous()
            self._old[name].add_(delta)
            found[name] = delta
        return found

    def rows(self, table: str, ids: Tensor) -> Tensor:
        """Rows as trained here."""
        with self._lock:
            return self._cache(table).pull(ids)

    def train_rows(self, table: str, ids: Tensor, grads: Tensor, rate: float) -> None:
        with self._lock:
            self._cache(table).push(ids, grads, rate)

    def _cache(self, table: str) -> "_Cache":
        if table not in self._caches:
            self._caches[table] = _Cache(self._connection, self._rows, table)
        return self._caches[table]


class _Cache:
    """The rows of a table that this trainer has looked up: as it has trained them, and as the servers have them."""

    def __init__(self, connection: Connection, rows: Rows, name: str) -> None:
        self._connection, self._rows, self._name = connection, rows, name
        self._mine, self._old = _tables(connection.plan, name)
        self._touched: list[Tensor] = []

    def pull(self, ids: Tensor) -> Tensor:
        """The rows as trained here; those seen for the first time come from the servers."""
        new = ids[~self._mine.contains(ids)]
        if new.numel():
            rows = self._rows.ask(self._name, new).wait()
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
            delta = (self._mine.pull(ids) - self._old.pull(ids)).div_(self._connection.plan.trainers)
            self._old.add(ids, delta)
            self._rows.push(self._name, ids, delta, 1.0)
            self._connection.settle()
        ids, rows = self._rows.changed(self._name)
        known = self._mine.contains(ids)
        ids, rows = ids[known], rows[known]
        if ids.numel():
            self._mine.add(ids, rows - self._old.pull(ids))
            self._old.assign(ids, rows)


def _tables(plan: Plan, name: str) -> tuple[SparseTable, SparseTable]:
    """One that trains, and one that only remembers."""
    spec = replace(plan.table(name), memory_rows=0)
    summing = replace(spec.optimizer, kind="sum", settings={})
    return SparseTable(spec, None), SparseTable(replace(spec, optimizer=summing), None)

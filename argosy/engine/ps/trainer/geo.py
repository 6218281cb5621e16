"""Geo-SGD: trainers train locally, and synchronize their deltas every k steps.

    delta = (w - old) / trainers         this trainer's change, its part of the mean
    old  += delta                        the part that the servers have
    server: w_s += delta
    w    += w_s - old;   old = w_s       the others' changes, on top of what is not sent yet

Tables work the same way, row by row: a trainer caches the rows that it has looked up, and pulls the rows that were
changed since its last synchronization.
"""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from argosy.engine.metrics import counters
from argosy.engine.ps.protocol.job_plan import JobPlan
from argosy.engine.ps.table.table import SparseTable
from argosy.engine.ps.trainer.connection import Tensors, TrainerConnection
from argosy.engine.ps.trainer.dense import Blocks
from argosy.engine.ps.trainer.sparse import TableClient

_STEPS = "steps"
"""How many steps this trainer has done, in `Geo.state`."""


class Geo:
    """The unsent changes of one trainer, and its cache of rows."""

    def __init__(self, connection: TrainerConnection, blocks: Blocks, rows: TableClient) -> None:
        self._connection, self._blocks, self._rows = connection, blocks, rows
        self._old: dict[str, Tensor] = {}
        """The dense variables as the servers have them, as far as this trainer knows."""
        self._caches: dict[str, _Cache] = {}
        self._steps = 0
        self._lock = threading.RLock()

    @property
    def has_begun(self) -> bool:
        return bool(self._old)

    def state(self) -> dict[str, Tensor]:
        """The state of this trainer that the servers do not have; called right after `synchronize`."""
        with self._lock:
            rows = {
                f"{name}/{part}": value
                for name, c in self._caches.items()
                for part, value in c.state().items()
            }
            return {**rows, _STEPS: torch.tensor([self._steps])}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore the result of `state`, after `begin`."""
        with self._lock:
            self._steps = int(state[_STEPS][0])
            for name in {key.rpartition("/")[0] for key in state if key != _STEPS}:
                self._cache(name).load(state[f"{name}/ids"], state[f"{name}/records"])

    def reset(self) -> None:
        """Discard the local state: the servers have loaded other values, and `begin` follows."""
        with self._lock:
            self._old, self._caches = {}, {}

    def begin(self, params: Mapping[str, Tensor]) -> None:
        """Set the servers' values, which deltas are relative to."""
        self._old = {name: value.detach().clone() for name, value in params.items()}

    def step(self, params: Tensors, names: Sequence[str]) -> None:
        """In every k-th step: push this trainer's deltas, and pull the others'."""
        with self._lock:
            self._steps += 1
            if self._steps % self._connection.plan.k_steps == 0:
                self.synchronize(dict(zip(names, params, strict=True)))

    def synchronize(self, params: Mapping[str, Tensor]) -> None:
        """Synchronize with the servers: dense parameters, then the rows of each table."""
        self._blocks.push_deltas(self._deltas(params))
        fresh = {n: torch.empty_like(v, memory_format=torch.contiguous_format) for n, v in params.items()}
        self._blocks.pull(fresh)
        for name, value in params.items():
            value.add_(fresh[name] - self._old[name])
            self._old[name].copy_(fresh[name])
        for cache in self._caches.values():
            cache.synchronize()
        self._connection.in_flight.pushes.clear()

    def _deltas(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """This trainer's deltas, which the servers add to their values."""
        deltas = {}
        for name, value in params.items():
            delta = (value.detach() - self._old[name]).div_(self._connection.plan.trainers).contiguous()
            self._old[name].add_(delta)
            deltas[name] = delta
        return deltas

    def rows(self, table: str, ids: Tensor) -> Tensor:
        """The rows as this trainer has trained them."""
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
    """The rows of a table that this trainer has looked up: the local values, and those of the servers."""

    def __init__(self, connection: TrainerConnection, rows: TableClient, name: str) -> None:
        self._connection, self._rows, self._name = connection, rows, name
        self._trained, self._old = _tables(connection.plan, name)
        self._touched: list[Tensor] = []

    def pull(self, ids: Tensor) -> Tensor:
        """The rows as trained here; rows that are not cached are pulled."""
        new = ids[~self._trained.contains(ids)]
        counters.prefetch_hits += len(ids) - len(new)
        counters.prefetch_misses += len(new)
        if new.numel():
            rows = self._rows.start_pull(self._name, new).wait()
            self._trained.assign(new, rows)
            self._old.assign(new, rows)
        return self._trained.pull(ids)

    def push(self, ids: Tensor, grads: Tensor, rate: float) -> None:
        """Train rows here."""
        self._trained.push(ids, grads, rate)
        self._touched.append(ids)

    def state(self) -> dict[str, Tensor]:
        return dict(zip(("ids", "records"), self._trained.records(), strict=True))

    def load(self, ids: Tensor, records: Tensor) -> None:
        self._trained.set_records(ids, records)
        self._old.assign(ids, self._trained.pull(ids))

    def synchronize(self) -> None:
        """Push the deltas of the rows that were trained since the last call, and pull the others'."""
        if self._touched:
            ids = torch.unique(torch.cat(self._touched))
            self._touched = []
            delta = (self._trained.pull(ids) - self._old.pull(ids)).div_(self._connection.plan.trainers)
            self._old.add(ids, delta)
            self._rows.push(self._name, ids, delta, 1.0)
            self._connection.wait_acked()
        ids, rows = self._rows.changed(self._name)
        known = self._trained.contains(ids)
        ids, rows = ids[known], rows[known]
        if ids.numel():
            self._trained.add(ids, rows - self._old.pull(ids))
            self._old.assign(ids, rows)


def _tables(plan: JobPlan, name: str) -> tuple[SparseTable, SparseTable]:
    """The table that is trained, and the copy of the servers' values."""
    spec = replace(plan.table(name), memory_rows=0)
    summing = replace(spec.optimizer, kind="sum", settings={})
    return SparseTable(spec, None), SparseTable(replace(spec, optimizer=summing), None)

"""A sparse table: pull rows, push their gradients, save and restore them, from any thread."""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ps.table import text
from argosy.engine.ps.table.merge import merge_rows
from argosy.engine.ps.table.rows import RowRule
from argosy.engine.ps.table.segments import Segments
from argosy.engine.ps.table.spec import TableSpec
from argosy.engine.ps.table.spill import Rows
from argosy.engine.ps.table.store import RowStore

__all__ = ["Cut", "SparseTable", "merge_rows"]

_RESTART = 1 << 32
"""The clock jumps by so much at a restore: beyond all versions that were given out after the snapshot and are lost."""


@dataclass(frozen=True)
class Cut:
    """The rows of a table at one moment, all of them or those that changed since a snapshot; read once."""

    parts: Iterator[Rows]
    clock: int
    is_whole: bool


class SparseTable:
    """Rows by id; every method may be called from any thread."""

    def __init__(self, spec: TableSpec, directory: Path | None = None) -> None:
        """`directory`: where rows are kept that memory has no room for; wanted if the spec has memory_rows."""
        self.spec = spec
        self._rule = RowRule(spec.optimizer.kind, spec.optimizer.settings, spec.dim)
        self._store = RowStore(spec, self._rule, directory)
        self._segments = Segments(spec.file_name)
        self._saved = 0  # the last version that is in a snapshot
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # one snapshot at a time; rows go on changing

    # --- rows -----------------------------------------------------------------------------------------

    def pull(self, ids: Tensor, create: bool = True) -> Tensor:
        """The values of rows, float32 [n, dim]; unknown ids are created, or only read as their first values."""
        ids = self._checked_ids(ids)
        real = self._real(ids)
        if real is None:
            return self._pull(ids, create)
        values = torch.zeros(len(ids), self.spec.dim)
        values[real] = self._pull(ids[real], create)
        return values

    def push(self, ids: Tensor, grads: Tensor, rate: float) -> None:
        """One step of the optimizer for each of these rows, all different; unknown ids are created first."""

        def step(slots: Tensor, grads: Tensor) -> None:
            records = self._store.records.index_select(0, slots)
            self._rule.apply(records, grads, rate)
            self._store.records.index_copy_(0, slots, records)

        self._change(ids, grads, step)

    def add(self, ids: Tensor, deltas: Tensor) -> None:
        """Add to the values of these rows, all different; the optimizer's state stays."""

        def step(slots: Tensor, deltas: Tensor) -> None:
            values = self._store.values
            values.index_copy_(0, slots, values.index_select(0, slots).add_(deltas))

        self._change(ids, deltas, step)

    def assign(self, ids: Tensor, rows: Tensor) -> None:
        """Set the values of these rows, all different; the optimizer's state stays."""
        self._change(ids, rows, lambda slots, rows: self._store.values.index_copy_(0, slots, rows))

    def changed_since(self, mark: int) -> tuple[Tensor, Tensor, int]:
        """Ids, sorted, and values of the rows that were created or changed since a mark (0: ever); the new mark."""
        with self._lock:
            parts, clock = list(self._store.parts(mark)), self._store.clock
        ids, records = (torch.cat(tensors) for tensors in list(zip(*parts, strict=True))[:2])
        ids, order = torch.sort(ids)
        return ids, records[order, : self.spec.dim], clock

    def clock(self) -> int:
        """The mark of now, for `changed_since`."""
        with self._lock:
            return self._store.clock

    def contains(self, ids: Tensor) -> Tensor:
        """Which of these ids, which may repeat, have a row; the padding counts as having one. bool [n]"""
        ids = self._checked_ids(ids)
        with self._lock:
            found = self._store.contains(ids)
        return found if self.spec.padding_idx is None else found | (ids == self.spec.padding_idx)

    def ids(self) -> Tensor:
        """All ids, sorted."""
        with self._lock:
            return torch.sort(self._store.ids()).values

    def __len__(self) -> int:
        with self._lock:
            return len(self._store)

    def memory_bytes(self) -> int:
        """What the table takes of memory."""
        with self._lock:
            return self._store.memory_bytes()

    def close(self) -> None:
        """Remove what is on disk besides snapshots; the table is not used again."""
        with self._lock:
            self._store.close()

    # --- snapshots ------------------------------------------------------------------------------------

    def snapshot(self, path: Path, named: Collection[str] | None = None) -> None:
        """Write what changed since the last snapshot into the folder; `state` then names the files that count.

        `named`: the files that the manifest on disk names now, which are kept until the next time; by default those
        of the last `state`.
        """
        with self._writing:
            self._write(path, self.cut(path), named)

    def cut(self, path: Path | None = None) -> Cut:
        """The rows as they are now: for `write` to this folder, or without one all of them."""
        with self._lock:
            segments = self._segments
            is_whole = path is None or path != segments.folder or segments.rows > 2 * len(self._store)
            return Cut(self._store.parts(0 if is_whole else self._saved), self._store.clock, is_whole)

    def write(self, path: Path, cut: Cut, named: Collection[str] | None = None) -> None:
        """Write a snapshot of a moment that has passed: `snapshot` in two halves, of which `cut` is quick."""
        with self._writing:
            self._write(path, cut, named)

    def state(self) -> list[str]:
        """The names of the files of the last snapshot, in the order in which `restore` wants them."""
        return list(self._segments.names)

    def restore(self, path: Path, segments: Sequence[str]) -> None:
        """Become what a snapshot says: the files that a manifest names, in its order."""
        with self._writing, self._lock:
            store = self._store
            store.clear()
            for rows, clock in self._segments.read(path, segments):
                self._check_width(rows[1], path)
                store.put(rows)
                store.clock = max(store.clock, clock)
            store.clock += _RESTART
            self._saved = store.clock

    def _write(self, path: Path, cut: Cut, named: Collection[str] | None) -> None:
        assert cut.clock >= self._saved, (
            f"the cut at {cut.clock} is older than the last snapshot, {self._saved}"
        )
        segments = self._segments
        # Of a folder where we have written or read nothing, only a manifest can tell what counts.
        if named is not None or path == segments.folder:
            segments.remove_others(path, {*segments.names, *(named or ())})
        segments.write(path, cut.parts, cut.clock, cut.is_whole)
        self._saved = cut.clock

    def save_text(self, path: Path, shard: int = 0, told: text.Told | None = None) -> Path:
        """Write all rows in Paddle's format: `<name>.block<shard>.txt` and `.meta` in the folder.

        `told` is told from time to time how many are written.
        """
        return text.save_text(path, self.spec.name, shard, self._rule.fields, self.cut().parts, told)

    def load_text(self, path: Path, keeps: Callable[[Tensor], Tensor] | None = None) -> None:
        """Add the rows that any servers saved to the folder, or those of them whose ids `keeps` says True to."""
        for ids, fields in text.load_text(path, self.spec.name, self._rule.fields):
            real = self._real(ids)
            wanted = torch.ones(len(ids), dtype=torch.bool) if real is None else real
            if keeps is not None:
                wanted = wanted & keeps(ids)
            self._load(ids[wanted], {name: values[wanted] for name, values in fields.items()})

    def _load(self, ids: Tensor, fields: dict[str, Tensor]) -> None:
        records = self._rule.start(fields["Param"])
        parts = dict(
            zip(self._rule.fields, records.split(list(self._rule.fields.values()), dim=1), strict=True)
        )
        for name, values in fields.items():
            parts[name].copy_(values)
        with self._lock:
            self._store.put((ids, records, self._store.new_versions(len(ids))))

    def _pull(self, ids: Tensor, create: bool) -> Tensor:
        with self._lock:
            slots = self._store.slots(ids) if create else self._store.known(ids)
            is_known = slots >= 0
            values = self._store.values.index_select(0, slots if create else slots[is_known])
            self._store.evict()
        if len(values) == len(ids):
            return values
        found = self._store.first(ids)
        found[is_known] = values
        return found

    def _change(self, ids: Tensor, rows: Tensor, step: Callable[[Tensor, Tensor], object]) -> None:
        ids = self._checked_ids(ids)
        rows = self._checked_rows(rows, len(ids))
        real = self._real(ids)
        if real is not None:
            ids, rows = ids[real], rows[real]
        with self._lock:
            slots = self._store.slots(ids)
            self._store.stamp(slots, ids)
            step(slots, rows)
            self._store.evict()

    # --- arguments ------------------------------------------------------------------------------------

    def _real(self, ids: Tensor) -> Tensor | None:
        """Which ids are not the padding; None: all."""
        if self.spec.padding_idx is None:
            return None
        real = ids != self.spec.padding_idx
        return None if real.all() else real

    def _checked_ids(self, ids: Tensor) -> Tensor:
        if ids.dim() != 1 or ids.dtype != torch.int64:
            raise ConfigError(
                f"ids of table {self.spec.name!r} are {ids.dtype}{list(ids.shape)}; give a flat int64 tensor"
            )
        return ids.contiguous()

    def _checked_rows(self, rows: Tensor, count: int) -> Tensor:
        if rows.shape != (count, self.spec.dim) or rows.dtype != torch.float32:
            raise ConfigError(
                f"rows of table {self.spec.name!r} are {rows.dtype}{list(rows.shape)}; "
                f"give float32 [{count}, {self.spec.dim}], one row for each id"
            )
        return rows

    def _check_width(self, records: Tensor, path: Path) -> None:
        if records.shape[1] != self._rule.width:
            raise ConfigError(
                f"the snapshot of table {self.spec.name!r} in {path} has {records.shape[1]} floats in a row and the "
                f"table has {self._rule.width}; restore it with the optimizer and the size that it was saved with"
            )

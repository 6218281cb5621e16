"""A sparse table: pull rows, push their gradients, save and restore them, from any thread."""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from argosy.engine.disk import Disk
from argosy.engine.errors import ConfigError
from argosy.engine.ps.table import persistence
from argosy.engine.ps.table.persistence import ProgressCallback, Segments
from argosy.engine.ps.table.row_optimizers import RowRule
from argosy.engine.ps.table.spill import Rows
from argosy.engine.ps.table.storage import RowStore
from argosy.engine.ps.table.table_spec import TableSpec

_RESTART = 1 << 32
"""Added to the clock at a restore: beyond all versions that were assigned after the snapshot and are lost."""


@dataclass(frozen=True)
class TableStats:
    """The size of a table, and the rows that were pulled and pushed since its creation."""

    rows: int
    spilled_rows: int
    nbytes: int
    pulled_rows: int
    pushed_rows: int


@dataclass(frozen=True)
class TableSnapshot:
    """The rows of a table at one moment: all, or those that changed since the last snapshot; iterated once."""

    parts: Iterator[Rows]
    clock: int
    is_whole: bool


class SparseTable:
    """Rows by id; every method may be called from any thread."""

    def __init__(self, spec: TableSpec, directory: Path | None = None, disk: Disk | None = None) -> None:
        """`directory`: for rows that do not fit into memory; required if the spec has memory_rows."""
        self.spec = spec
        self._rule = RowRule(spec.optimizer.kind, spec.optimizer.settings, spec.dim)
        self._store = RowStore(spec, self._rule, directory)
        self._disk = disk or Disk()
        self._segments = Segments(spec.file_name, self._disk)
        self._pulled_rows = self._pushed_rows = 0
        self._saved = 0  # the last version that is in a snapshot
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # one snapshot at a time; rows may change meanwhile

    # --- rows -----------------------------------------------------------------------------------------

    def pull(self, ids: Tensor, create: bool = True) -> Tensor:
        """The values of rows, float32 [n, dim]; unknown ids are created, or only read as their initial values."""
        ids = self._checked_ids(ids)
        with self._lock:
            self._pulled_rows += len(ids)
            slots = self._store.slots(ids) if create else self._store.known(ids)
            is_known = slots >= 0
            values = self._store.values.index_select(0, slots if create else slots[is_known])
            self._store.evict()
        if len(values) == len(ids):
            return values
        rows = self._store.first(ids)
        rows[is_known] = values
        return rows

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
        """The current mark, for `changed_since`."""
        with self._lock:
            return self._store.clock

    def contains(self, ids: Tensor) -> Tensor:
        """Which of these ids, which may repeat, have a row. bool [n]"""
        ids = self._checked_ids(ids)
        with self._lock:
            return self._store.contains(ids)

    def records(self) -> tuple[Tensor, Tensor]:
        """Ids and records, values with the optimizer's state, of all rows."""
        parts = list(zip(*self.capture_snapshot().parts, strict=True))
        return torch.cat(parts[0]), torch.cat(parts[1])

    def set_records(self, ids: Tensor, records: Tensor) -> None:
        """Set whole records, as returned by `records`."""
        with self._lock:
            self._store.put((ids, records, self._store.new_versions(len(ids))))

    def clear(self) -> None:
        """Remove all rows; the next snapshot is a full one."""
        with self._writing, self._lock:
            self._store.clear()
            self._segments = Segments(self.spec.file_name, self._disk)

    def ids(self) -> Tensor:
        """All ids, sorted."""
        with self._lock:
            return torch.sort(self._store.ids()).values

    def __len__(self) -> int:
        with self._lock:
            return len(self._store)

    def memory_bytes(self) -> int:
        """The memory use of the table."""
        with self._lock:
            return self._store.memory_bytes()

    def stats(self) -> TableStats:
        """Its size, and the rows that were pulled and pushed."""
        with self._lock:
            store = self._store
            return TableStats(
                len(store), store.num_spilled, store.memory_bytes(), self._pulled_rows, self._pushed_rows
            )

    def close(self) -> None:
        """Remove the files on disk except snapshots; the table must not be used again."""
        with self._lock:
            self._store.close()

    # --- snapshots ------------------------------------------------------------------------------------

    def capture_snapshot(self, path: Path | None = None) -> TableSnapshot:
        """Capture the rows as they are now: for `write_snapshot` to this folder, or without one all rows."""
        with self._lock:
            segments = self._segments
            is_whole = path is None or path != segments.folder or segments.rows > 2 * len(self._store)
            return TableSnapshot(
                self._store.parts(0 if is_whole else self._saved), self._store.clock, is_whole
            )

    def write_snapshot(
        self, path: Path, snapshot: TableSnapshot, listed: Collection[str] | None = None
    ) -> None:
        """Write a captured snapshot into the folder; `snapshot_files` then lists the current files.

        `listed`: the files that the manifest on disk lists, which stay until the next snapshot; by default those of
        the last snapshot.
        """
        with self._writing:
            assert snapshot.clock >= self._saved, (
                f"the snapshot at {snapshot.clock} is older than the last snapshot, {self._saved}"
            )
            segments = self._segments
            # In a folder that this table has not used, only a manifest says which files are current.
            if listed is not None or path == segments.folder:
                segments.remove_others(path, {*segments.names, *(listed or ())})
            segments.write(path, snapshot.parts, snapshot.clock, snapshot.is_whole)
            self._saved = snapshot.clock

    def snapshot_files(self) -> list[str]:
        """The files of the last snapshot, in the order that `restore` needs."""
        return list(self._segments.names)

    def restore(self, path: Path, segments: Sequence[str]) -> None:
        """Restore a snapshot: the files that a manifest lists, in its order."""
        with self._writing, self._lock:
            store = self._store
            store.clear()
            for rows, clock in self._segments.read(path, segments):
                self._check_width(rows[1], path)
                store.put(rows)
                store.clock = max(store.clock, clock)
            store.clock += _RESTART
            self._saved = store.clock

    def save_text(
        self, path: Path, shard: int = 0, save: str = "", progress: ProgressCallback | None = None
    ) -> Path:
        """Write all rows in Paddle's format: `<name>.block<shard>.txt` and `.meta` in the folder.

        `save` becomes part of the names; `progress` is called from time to time with the number of written rows.
        """
        return persistence.save_text(
            path, self.spec.name, shard, self._rule.fields, self.capture_snapshot().parts, save, progress
        )

    def load_text(self, paths: Sequence[Path], keeps: Callable[[Tensor], Tensor] | None = None) -> None:
        """Add the rows of these files; with `keeps`, only those whose ids it selects."""
        for ids, fields in persistence.load_text(paths, self._rule.fields):
            selected = slice(None) if keeps is None else keeps(ids)
            self._load(ids[selected], {name: values[selected] for name, values in fields.items()})

    def _load(self, ids: Tensor, fields: dict[str, Tensor]) -> None:
        records = self._rule.start(fields["Param"])
        parts = dict(
            zip(self._rule.fields, records.split(list(self._rule.fields.values()), dim=1), strict=True)
        )
        for name, values in fields.items():
            parts[name].copy_(values)
        with self._lock:
            self._store.put((ids, records, self._store.new_versions(len(ids))))

    def _change(self, ids: Tensor, rows: Tensor, step: Callable[[Tensor, Tensor], object]) -> None:
        ids = self._checked_ids(ids)
        rows = self._checked_rows(rows, len(ids))
        with self._lock:
            self._pushed_rows += len(ids)
            slots = self._store.slots(ids)
            self._store.stamp(slots, ids)
            step(slots, rows)
            self._store.evict()

    # --- arguments ------------------------------------------------------------------------------------

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


def merge_rows(parts: Sequence[tuple[Tensor, Tensor]], scale: float) -> tuple[Tensor, Tensor]:
    """Unique ids, sorted, and `scale` times the sum of the gradients of each; ids may repeat in a part too.

    Summed in the order of the parts, so that equal parts give equal bits.
    """
    assert parts, "there is nothing to merge"
    ids, where = torch.unique(torch.cat([part[0] for part in parts]), return_inverse=True)
    total = parts[0][1].new_zeros(len(ids), parts[0][1].shape[1])
    # On the CPU index_add_ goes through the index in its order, on one thread.
    total.index_add_(0, where, torch.cat([part[1] for part in parts]))
    return ids, total if scale == 1.0 else total.mul_(scale)

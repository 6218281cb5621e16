"""A sparse table: pull rows, push their gradients, save and restore them, from any thread.

    ids ──▶ slots ──▶ records                      in memory
             │ unknown? back from disk, else first values
             └ too many? least recently used ones to disk

Every change of a row gives it a new version, from one clock: so it is known what changed since the last snapshot, and
since a trainer last asked.
"""

# SPDX-License-Identifier: Apache-2.0
import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ps.table import text
from argosy.engine.ps.table.init import first_values
from argosy.engine.ps.table.memory import MemoryRows
from argosy.engine.ps.table.merge import merge_rows
from argosy.engine.ps.table.rows import RowRule
from argosy.engine.ps.table.segments import Segments
from argosy.engine.ps.table.spec import TableSpec
from argosy.engine.ps.table.spill import Rows, Spill

__all__ = ["Cut", "SparseTable", "merge_rows"]

_RESTART = 1 << 32
"""The clock jumps by so much at a restore: beyond all versions that were given out after the snapshot and are lost."""

_EVICT_MORE = 8192
"""Rows that go to disk together: a search for the least used is worth it, and nobody waits long."""


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
        self._rows = MemoryRows(self._rule.width, spec.memory_rows)
        self._spill = self._make_spill(directory) if spec.memory_rows else None
        self._segments = Segments(spec.file_name)
        self._clock = self._saved = 0  # the last version given out; and the last one that is in a snapshot
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # one snapshot at a time; rows go on changing

    def _make_spill(self, directory: Path | None) -> Spill:
        if directory is None:
            raise ConfigError(
                f"table {self.spec.name!r} has memory_rows={self.spec.memory_rows} and no directory for the other "
                "rows; give one, or set memory_rows to 0"
            )
        return Spill(directory / f"{self.spec.file_name}.rows", self._rule.width, self.spec.memory_rows)

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
            records = self._rows.records.index_select(0, slots)
            self._rule.apply(records, grads, rate)
            self._rows.records.index_copy_(0, slots, records)

        self._change(ids, grads, step)

    def add(self, ids: Tensor, deltas: Tensor) -> None:
        """Add to the values of these rows, all different; the optimizer's state stays."""

        def step(slots: Tensor, deltas: Tensor) -> None:
            values = self._values()
            values.index_copy_(0, slots, values.index_select(0, slots).add_(deltas))

        self._change(ids, deltas, step)

    def assign(self, ids: Tensor, rows: Tensor) -> None:
        """Set the values of these rows, all different; the optimizer's state stays."""
        self._change(ids, rows, lambda slots, rows: self._values().index_copy_(0, slots, rows))

    def changed_since(self, mark: int) -> tuple[Tensor, Tensor, int]:
        """Ids, sorted, and values of the rows that were created or changed since a mark (0: ever); the new mark."""
        with self._lock:
            parts, clock = list(self._parts(mark)), self._clock
        ids, records = (torch.cat(tensors) for tensors in list(zip(*parts, strict=True))[:2])
        ids, order = torch.sort(ids)
        return ids, records[order, : self.spec.dim], clock

    def contains(self, ids: Tensor) -> Tensor:
        """Which of these ids, which may repeat, have a row; the padding counts as having one. bool [n]"""
        ids = self._checked_ids(ids)
        with self._lock:
            found = self._rows.find(ids) >= 0
            if self._spill is not None and self._spill.count:
                found |= self._spill.get(ids)[0]
        return found if self.spec.padding_idx is None else found | (ids == self.spec.padding_idx)

    def ids(self) -> Tensor:
        """All ids, sorted."""
        with self._lock:
            here = self._rows.ids[self._rows.changed(0)]
            return torch.sort(here if self._spill is None else torch.cat([here, self._spill.ids()])).values

    def __len__(self) -> int:
        with self._lock:
            return self._count()

    def memory_bytes(self) -> int:
        """What the table takes of memory."""
        with self._lock:
            return self._rows.memory_bytes() + (0 if self._spill is None else self._spill.memory_bytes())

    def close(self) -> None:
        """Remove what is on disk besides snapshots; the table is not used again."""
        with self._lock:
            if self._spill is not None:
                self._spill.close()

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
            is_whole = path is None or path != segments.folder or segments.rows > 2 * self._count()
            return Cut(self._parts(0 if is_whole else self._saved), self._clock, is_whole)

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
            self._rows = MemoryRows(self._rule.width, self.spec.memory_rows)
            if self._spill is not None:
                self._spill.clear()
            for rows, clock in self._segments.read(path, segments):
                self._check_width(rows[1], path)
                self._put(rows)
                self._clock = max(self._clock, clock)
            self._clock += _RESTART
            self._saved = self._clock

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

    def save_text(self, path: Path, shard: int = 0) -> Path:
        """Write all rows in Paddle's format: `<name>.block<shard>.txt` and `.meta` in the folder."""
        return text.save_text(path, self.spec.name, shard, self._rule.fields, self.cut().parts)

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
            self._put((ids, records, self._new_versions(len(ids))))

    # --- within the lock ------------------------------------------------------------------------------

    def _pull(self, ids: Tensor, create: bool) -> Tensor:
        with self._lock:
            slots = self._slots(ids) if create else self._known(ids)
            is_known = slots >= 0
            values = self._values().index_select(0, slots if create else slots[is_known])
            self._evict()
        if len(values) == len(ids):
            return values
        found = self._first(ids)
        found[is_known] = values
        return found

    def _change(self, ids: Tensor, rows: Tensor, step: Callable[[Tensor, Tensor], object]) -> None:
        ids = self._checked_ids(ids)
        rows = self._checked_rows(rows, len(ids))
        real = self._real(ids)
        if real is not None:
            ids, rows = ids[real], rows[real]
        with self._lock:
            slots = self._slots(ids)
            self._stamp(slots, ids)
            step(slots, rows)
            self._evict()

    def _slots(self, ids: Tensor) -> Tensor:
        """Where these rows are in memory, now that they are there."""
        slots, fresh = self._rows.insert(ids)
        if len(fresh):
            try:
                self._fill(ids[fresh], slots[fresh])
            except (
                BaseException
            ):  # of the disk, or of memory: an id must not find a record that nobody has written
                self._rows.drop(slots[fresh], ids[fresh])
                raise
        return slots

    def _known(self, ids: Tensor) -> Tensor:
        """Where these rows are in memory; -1: there is no such row."""
        slots = self._rows.find(ids)
        if self._spill is not None and self._spill.count:
            missing = torch.unique(ids[slots < 0])
            is_there, _ = self._spill.get(missing)
            self._slots(missing[is_there])
            slots = self._rows.find(ids)
        return slots

    def _fill(self, ids: Tensor, slots: Tensor) -> None:
        """Rows that were not in memory: they come back from disk, or are new."""
        back = ids[:0]
        if self._spill is not None and self._spill.count:
            is_back, rows = self._spill.get(ids)
            self._rows.fill(slots[is_back], *rows)
            back, ids, slots = rows[0], ids[~is_back], slots[~is_back]
        self._rows.fill(slots, ids, self._rule.start(self._first(ids)), self._new_versions(len(ids)))
        if self._spill is not None and len(back):
            self._spill.drop(back)

    def _put(self, rows: Rows) -> None:
        """Set whole records, a batch that memory has room for at a time."""
        size = self.spec.memory_rows or max(len(rows[0]), 1)
        for ids, records, versions in zip(*(tensor.split(size) for tensor in rows), strict=True):
            slots, fresh = self._rows.insert(ids)
            if self._spill is not None:
                self._spill.drop(self._spill.get(ids[fresh])[1][0])
            self._rows.fill(slots, ids, records, versions)
            self._evict()

    def _stamp(self, slots: Tensor, ids: Tensor) -> None:
        """Give each of these rows a version of its own; which shows if one of them stands there twice."""
        versions = self._new_versions(len(slots))
        self._rows.versions.index_copy_(0, slots, versions)
        is_other = self._rows.versions.index_select(0, slots) != versions
        if is_other.any():
            twice = int(ids[is_other][0])
            raise ConfigError(
                f"id {twice} of table {self.spec.name!r} is there twice; add its rows up with merge_rows"
            )

    def _evict(self) -> None:
        """If memory holds more rows than it should: these and a few more, least recently used, go to disk."""
        limit, count = self.spec.memory_rows, len(self._rows)
        if self._spill is None or count <= limit:
            return
        slots = self._rows.least_used(count - limit + min(limit // 8, _EVICT_MORE))
        rows = self._rows.at(slots)
        self._spill.put(rows)
        self._rows.drop(slots, rows[0])

    def _parts(self, mark: int) -> Iterator[Rows]:
        """The rows that changed since the mark, as they are now, whenever they are read."""
        parts: list[Iterable[Rows]] = [[self._rows.at(self._rows.changed(mark))]]
        if self._spill is not None and self._spill.count:
            parts.append(self._spill.changed(mark))
        return itertools.chain.from_iterable(parts)

    def _count(self) -> int:
        return len(self._rows) + (0 if self._spill is None else self._spill.count)

    def _new_versions(self, count: int) -> Tensor:
        self._clock += count
        return torch.arange(self._clock - count + 1, self._clock + 1)

    def _values(self) -> Tensor:
        return self._rows.records[:, : self.spec.dim]

    def _first(self, ids: Tensor) -> Tensor:
        return first_values(self.spec.initializer, self.spec.name, ids, self.spec.dim)

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

"""The rows of a table in memory and on disk, as one; the table's lock is held around every call.

    ids ──▶ slots ──▶ records                      in memory
             │ unknown? back from disk, else first values
             └ too many? least recently used ones to disk

Every change of a row gives it a new version, from one clock: so it is known what changed since the last snapshot, and
since a trainer last asked.
"""

# SPDX-License-Identifier: Apache-2.0
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ps.table.init import first_values
from argosy.engine.ps.table.memory import MemoryRows
from argosy.engine.ps.table.rows import RowRule
from argosy.engine.ps.table.spec import TableSpec
from argosy.engine.ps.table.spill import Rows, Spill

_EVICT_MORE = 8192
"""Rows that go to disk together: a search for the least used is worth it, and nobody waits long."""


class RowStore:
    """Records by id."""

    def __init__(self, spec: TableSpec, rule: RowRule, directory: Path | None) -> None:
        """`directory`: where rows are kept that memory has no room for; wanted if the spec has memory_rows."""
        self._spec, self._rule = spec, rule
        self._rows = MemoryRows(rule.width, spec.memory_rows)
        self._spill = self._make_spill(directory) if spec.memory_rows else None
        self.clock = 0
        """The last version given out."""

    def _make_spill(self, directory: Path | None) -> Spill:
        if directory is None:
            raise ConfigError(
                f"table {self._spec.name!r} has memory_rows={self._spec.memory_rows} and no directory for the other "
                "rows; give one, or set memory_rows to 0"
            )
        return Spill(directory / f"{self._spec.file_name}.rows", self._rule.width, self._spec.memory_rows)

    @property
    def records(self) -> Tensor:
        """Those in memory, by slot."""
        return self._rows.records

    @property
    def values(self) -> Tensor:
        """The values of those in memory, by slot."""
        return self._rows.records[:, : self._spec.dim]

    def __len__(self) -> int:
        return len(self._rows) + (0 if self._spill is None else self._spill.count)

    def slots(self, ids: Tensor) -> Tensor:
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

    def known(self, ids: Tensor) -> Tensor:
        """Where these rows are in memory; -1: there is no such row."""
        slots = self._rows.find(ids)
        if self._spill is not None and self._spill.count:
            missing = torch.unique(ids[slots < 0])
            is_there, _ = self._spill.get(missing)
            self.slots(missing[is_there])
            slots = self._rows.find(ids)
        return slots

    def _fill(self, ids: Tensor, slots: Tensor) -> None:
        """Rows that were not in memory: they come back from disk, or are new."""
        back = ids[:0]
        if self._spill is not None and self._spill.count:
            is_back, rows = self._spill.get(ids)
            self._rows.fill(slots[is_back], *rows)
            back, ids, slots = rows[0], ids[~is_back], slots[~is_back]
        self._rows.fill(slots, ids, self._rule.start(self.first(ids)), self.new_versions(len(ids)))
        if self._spill is not None and len(back):
            self._spill.drop(back)

    def put(self, rows: Rows) -> None:
        """Set whole records, a batch that memory has room for at a time."""
        size = self._spec.memory_rows or max(len(rows[0]), 1)
        for ids, records, versions in zip(*(tensor.split(size) for tensor in rows), strict=True):
            slots, fresh = self._rows.insert(ids)
            if self._spill is not None:
                self._spill.drop(self._spill.get(ids[fresh])[1][0])
            self._rows.fill(slots, ids, records, versions)
            self.evict()

    def stamp(self, slots: Tensor, ids: Tensor) -> None:
        """Give each of these rows a version of its own; which shows if one of them stands there twice."""
        versions = self.new_versions(len(slots))
        self._rows.versions.index_copy_(0, slots, versions)
        is_other = self._rows.versions.index_select(0, slots) != versions
        if is_other.any():
            twice = int(ids[is_other][0])
            raise ConfigError(
                f"id {twice} of table {self._spec.name!r} is there twice; add its rows up with merge_rows"
            )

    def evict(self) -> None:
        """If memory holds more rows than it should: these and a few more, least recently used, go to disk."""
        limit, count = self._spec.memory_rows, len(self._rows)
        if self._spill is None or count <= limit:
            return
        slots = self._rows.least_used(count - limit + min(limit // 8, _EVICT_MORE))
        rows = self._rows.at(slots)
        self._spill.put(rows)
        self._rows.drop(slots, rows[0])

    def parts(self, mark: int) -> Iterator[Rows]:
        """The rows that changed since the mark, as they are now, whenever they are read."""
        parts: list[Iterable[Rows]] = [[self._rows.at(self._rows.changed(mark))]]
        if self._spill is not None and self._spill.count:
            parts.append(self._spill.changed(mark))
        return itertools.chain.from_iterable(parts)

    def new_versions(self, count: int) -> Tensor:
        """For so many rows that change."""
        self.clock += count
        return torch.arange(self.clock - count + 1, self.clock + 1)

    def first(self, ids: Tensor) -> Tensor:
        """The values that these rows begin with."""
        return first_values(self._spec.initializer, self._spec.name, ids, self._spec.dim)

    def contains(self, ids: Tensor) -> Tensor:
        """Which of these ids have a row. bool [n]"""
        found = self._rows.find(ids) >= 0
        if self._spill is not None and self._spill.count:
            found |= self._spill.get(ids)[0]
        return found

    def ids(self) -> Tensor:
        """All ids."""
        here = self._rows.ids[self._rows.changed(0)]
        return here if self._spill is None else torch.cat([here, self._spill.ids()])

    def memory_bytes(self) -> int:
        """What they take of memory."""
        return self._rows.memory_bytes() + (0 if self._spill is None else self._spill.memory_bytes())

    def clear(self) -> None:
        """Forget all rows; the clock goes on."""
        self._rows = MemoryRows(self._rule.width, self._spec.memory_rows)
        if self._spill is not None:
            self._spill.clear()

    def close(self) -> None:
        """Remove what is on disk."""
        if self._spill is not None:
            self._spill.close()

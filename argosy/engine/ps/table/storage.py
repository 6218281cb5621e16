"""The rows of a table: an index of ids, records in memory, and a spill on disk. The caller holds the table's lock.

    ids ──▶ slots ──▶ records                      in memory
             │ unknown? from disk, else initial values
             └ too many? spill the least recently used to disk

Every change of a row gives it a new version, from one clock: snapshots and geo trainers ask for the rows that changed
since a version.

Rows in memory:

slot      0        1        2        3 …                 grows by doubling
ids       | 17     | 4      | –      | 9
records   | [v|s]  | [v|s]  |        | [v|s]
versions  | 12     | 3      | 0      | 40                the row's last change; 0: the slot is free
uses      | 8      | 8      | 1      | 9                 the row's last access; only if rows may be evicted
"""

# SPDX-License-Identifier: Apache-2.0
import itertools
import weakref
from collections.abc import Iterable, Iterator
from ctypes import c_int64, c_void_p
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from argosy.engine import kernels
from argosy.engine.errors import ConfigError
from argosy.engine.kernels.signatures import INDEX_ERASE, INDEX_FIND, INDEX_INSERT
from argosy.engine.ps.table.row_optimizers import RowRule
from argosy.engine.ps.table.spill import Rows, Spill
from argosy.engine.ps.table.table_spec import TableSpec, first_values

_MIN_SLOTS = 1024
_NEVER = torch.iinfo(torch.int64).max


class Index(Protocol):
    """id ─▶ slot. Slots are numbers from 0; those of erased ids are reused. Not thread-safe."""

    def __len__(self) -> int: ...

    @property
    def high(self) -> int:
        """An upper bound of all slots that were ever used."""

    def find(self, ids: Tensor) -> Tensor:
        """The slot of each id; -1: unknown."""

    def insert(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The slot of each id, new ones for unknown ids; and the positions of the first occurrences of these."""

    def erase(self, ids: Tensor) -> None:
        """Remove ids; unknown ids have no effect."""

    def memory_bytes(self) -> int:
        """Its memory use."""


def make_index() -> Index:
    """An empty index, of the fastest available kind."""
    return DictIndex() if kernels.unavailable() else HashIndex()


class HashIndex:
    """The index in C++, kernels/source/hash_index.cpp; ids are int64 and contiguous."""

    def __init__(self) -> None:
        self._library = kernels.library()
        for name, result in _RESULTS.items():
            getattr(self._library, f"argosy_index_{name}").restype = result
        self._handle = c_void_p(self._library.argosy_index_new())
        _check(bool(self._handle))
        weakref.finalize(self, self._library.argosy_index_delete, self._handle)

    def __len__(self) -> int:
        return int(self._library.argosy_index_size(self._handle))

    @property
    def high(self) -> int:
        return int(self._library.argosy_index_high(self._handle))

    def find(self, ids: Tensor) -> Tensor:
        slots = torch.empty_like(ids)
        INDEX_FIND((ids, slots), self._handle, c_int64(len(ids)))
        return slots

    def insert(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        slots, fresh = torch.empty_like(ids), torch.empty_like(ids)
        count = int(INDEX_INSERT((ids, slots, fresh), self._handle, c_int64(len(ids))))
        _check(count >= 0)
        return slots, fresh[:count]

    def erase(self, ids: Tensor) -> None:
        _check(INDEX_ERASE((ids,), self._handle, c_int64(len(ids))) >= 0)

    def memory_bytes(self) -> int:
        return int(self._library.argosy_index_bytes(self._handle))


_RESULTS: dict[str, Any] = {
    "new": c_void_p,
    "delete": None,
    "find": None,
    **dict.fromkeys(("size", "high", "bytes", "insert", "erase"), c_int64),
}


def _check(has_memory: bool) -> None:
    if not has_memory:
        raise MemoryError("out of memory for the ids of a table; set memory_rows, or use more servers")


class DictIndex:
    """The index in Python, for hosts without a compiler; equal calls give the same slots as `HashIndex`."""

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self._free: list[int] = []
        self.high = 0

    def __len__(self) -> int:
        return len(self._slots)

    def find(self, ids: Tensor) -> Tensor:
        return torch.tensor([self._slots.get(key, -1) for key in ids.tolist()], dtype=torch.int64)

    def insert(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        slots, fresh = [], []
        for position, key in enumerate(ids.tolist()):
            slot = self._slots.get(key)
            if slot is None:
                slot = self._slots[key] = self._take_slot()
                fresh.append(position)
            slots.append(slot)
        return torch.tensor(slots, dtype=torch.int64), torch.tensor(fresh, dtype=torch.int64)

    def erase(self, ids: Tensor) -> None:
        slots = (self._slots.pop(key, None) for key in ids.tolist())
        self._free.extend(slot for slot in slots if slot is not None)

    def memory_bytes(self) -> int:
        return 100 * len(self._slots) + 8 * len(self._free)  # a dict's entry with its two numbers

    def _take_slot(self) -> int:
        if self._free:
            return self._free.pop()
        self.high += 1
        return self.high - 1


class MemoryRows:
    """Rows in memory, by id."""

    def __init__(self, width: int, limit: int) -> None:
        """Records of `width` floats; the caller evicts rows beyond about `limit`, 0: any number."""
        self._index = make_index()
        self._limit = limit
        self._now = 0
        self.records = torch.empty(0, width)
        self.ids, self.versions, self.uses = (torch.empty(0, dtype=torch.int64) for _ in range(3))

    def __len__(self) -> int:
        return len(self._index)

    def find(self, ids: Tensor) -> Tensor:
        """The slot of each id, -1 if it is not in memory."""
        slots = self._index.find(ids)
        if self._limit:
            self._use(slots[slots >= 0])
        return slots

    def insert(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The slot of each id; and the positions of those that are new, which the caller fills with `fill`."""
        self._reserve(max(self._index.high, len(self._index) + len(ids)))
        slots, fresh = self._index.insert(ids)
        if self._limit:
            self._use(slots)
        return slots, fresh

    def fill(self, slots: Tensor, ids: Tensor, records: Tensor, versions: Tensor) -> None:
        """Set ids, records and versions of these rows."""
        self.ids.index_copy_(0, slots, ids)
        self.records.index_copy_(0, slots, records)
        self.versions.index_copy_(0, slots, versions)

    def changed(self, mark: int) -> Tensor:
        """The slots of the rows with a version above the mark."""
        return torch.nonzero(self.versions[: self._index.high] > mark).squeeze(1)

    def at(self, slots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Copies of ids, records and versions."""
        return tuple(t.index_select(0, slots) for t in (self.ids, self.records, self.versions))  # type: ignore[return-value]  # three tensors

    def least_used(self, count: int) -> Tensor:
        """The slots of the `count` least recently used rows."""
        high = self._index.high
        uses = torch.where(self.versions[:high] > 0, self.uses[:high], _NEVER)
        return torch.topk(uses, count, largest=False, sorted=False).indices

    def drop(self, slots: Tensor, ids: Tensor) -> None:
        """Remove these rows."""
        self._index.erase(ids)
        self.versions.index_fill_(0, slots, 0)

    def memory_bytes(self) -> int:
        arrays = (self.records, self.ids, self.versions, self.uses)
        return sum(array.nbytes for array in arrays) + self._index.memory_bytes()

    def _use(self, slots: Tensor) -> None:
        self._now += 1
        self.uses.index_fill_(0, slots, self._now)

    def _reserve(self, wanted: int) -> None:
        """Reserve slots, by doubling: the amortized cost of a row is constant."""
        have = len(self.ids)
        if wanted <= have:
            return
        size = max(wanted, _MIN_SLOTS, 2 * have)
        if self._limit:  # beyond the limit reserve for a batch only
            size = max(wanted, min(size, self._limit))
        self.records = _resized(self.records, size)
        self.ids, self.versions = _resized(self.ids, size), _resized(self.versions, size)
        if self._limit:
            self.uses = _resized(self.uses, size)


def _resized(old: Tensor, size: int) -> Tensor:
    new = torch.empty(size, *old.shape[1:], dtype=old.dtype)
    new[: len(old)] = old
    if old.dtype == torch.int64:
        new[len(old) :] = 0
    return new


_EVICT_BATCH = 8192
"""Rows evicted at once beyond the excess: amortizes the search for the least recently used."""


class RowStore:
    """Records by id, in memory or spilled to disk."""

    def __init__(self, spec: TableSpec, rule: RowRule, directory: Path | None) -> None:
        """`directory`: for rows that do not fit into memory; required if the spec has memory_rows."""
        self._spec, self._rule = spec, rule
        self._rows = MemoryRows(rule.width, spec.memory_rows)
        self._spill = self._make_spill(directory) if spec.memory_rows else None
        self.clock = 0
        """The last version that was assigned."""

    def _make_spill(self, directory: Path | None) -> Spill:
        if directory is None:
            raise ConfigError(
                f"table {self._spec.name!r} has memory_rows={self._spec.memory_rows} and no directory for the other "
                "rows; give one, or set memory_rows to 0"
            )
        return Spill(directory / f"{self._spec.file_name}.rows", self._rule.width, self._spec.memory_rows)

    @property
    def records(self) -> Tensor:
        """The records in memory, by slot."""
        return self._rows.records

    @property
    def values(self) -> Tensor:
        """The values in memory, by slot."""
        return self._rows.records[:, : self._spec.dim]

    def __len__(self) -> int:
        return len(self._rows) + (0 if self._spill is None else self._spill.count)

    @property
    def num_spilled(self) -> int:
        """Rows on disk."""
        return 0 if self._spill is None else self._spill.count

    def slots(self, ids: Tensor) -> Tensor:
        """The slots of these rows, which are loaded from disk or created first."""
        slots, fresh = self._rows.insert(ids)
        if len(fresh):
            try:
                self._fill(ids[fresh], slots[fresh])
            except BaseException:  # disk or memory: the index must not refer to a record that was not written
                self._rows.drop(slots[fresh], ids[fresh])
                raise
        return slots

    def known(self, ids: Tensor) -> Tensor:
        """The slots of these rows, loaded from disk; -1: there is no such row."""
        slots = self._rows.find(ids)
        if self._spill is not None and self._spill.count:
            missing = torch.unique(ids[slots < 0])
            is_there, _ = self._spill.get(missing)
            self.slots(missing[is_there])
            slots = self._rows.find(ids)
        return slots

    def _fill(self, ids: Tensor, slots: Tensor) -> None:
        """Fill slots of rows that were not in memory: from disk, or with initial values."""
        loaded = ids[:0]
        if self._spill is not None and self._spill.count:
            is_on_disk, rows = self._spill.get(ids)
            self._rows.fill(slots[is_on_disk], *rows)
            loaded, ids, slots = rows[0], ids[~is_on_disk], slots[~is_on_disk]
        self._rows.fill(slots, ids, self._rule.start(self.first(ids)), self.new_versions(len(ids)))
        if self._spill is not None and len(loaded):
            self._spill.drop(loaded)

    def put(self, rows: Rows) -> None:
        """Set whole records, in batches that fit into memory."""
        size = self._spec.memory_rows or max(len(rows[0]), 1)
        for ids, records, versions in zip(*(tensor.split(size) for tensor in rows), strict=True):
            slots, fresh = self._rows.insert(ids)
            if self._spill is not None:
                self._spill.drop(self._spill.get(ids[fresh])[1][0])
            self._rows.fill(slots, ids, records, versions)
            self.evict()

    def stamp(self, slots: Tensor, ids: Tensor) -> None:
        """Assign new versions to these rows; raises ConfigError if an id is repeated."""
        versions = self.new_versions(len(slots))
        self._rows.versions.index_copy_(0, slots, versions)
        is_other = self._rows.versions.index_select(0, slots) != versions
        if is_other.any():
            repeated = int(ids[is_other][0])
            raise ConfigError(
                f"id {repeated} of table {self._spec.name!r} is repeated; sum its rows with merge_rows"
            )

    def evict(self) -> None:
        """Spill the least recently used rows to disk if memory has more than memory_rows."""
        limit, count = self._spec.memory_rows, len(self._rows)
        if self._spill is None or count <= limit:
            return
        slots = self._rows.least_used(count - limit + min(limit // 8, _EVICT_BATCH))
        rows = self._rows.at(slots)
        self._spill.put(rows)
        self._rows.drop(slots, rows[0])

    def parts(self, mark: int) -> Iterator[Rows]:
        """The rows that changed since a version, as of this call."""
        parts: list[Iterable[Rows]] = [[self._rows.at(self._rows.changed(mark))]]
        if self._spill is not None and self._spill.count:
            parts.append(self._spill.changed(mark))
        return itertools.chain.from_iterable(parts)

    def new_versions(self, count: int) -> Tensor:
        """New versions for this many rows."""
        self.clock += count
        return torch.arange(self.clock - count + 1, self.clock + 1)

    def first(self, ids: Tensor) -> Tensor:
        """The initial values of these rows."""
        return first_values(self._spec.initializer, self._spec.name, ids, self._spec.dim)

    def contains(self, ids: Tensor) -> Tensor:
        """Which of these ids have a row. bool [n]"""
        is_known = self._rows.find(ids) >= 0
        if self._spill is not None and self._spill.count:
            is_known |= self._spill.get(ids)[0]
        return is_known

    def ids(self) -> Tensor:
        """All ids."""
        in_memory = self._rows.ids[self._rows.changed(0)]
        return in_memory if self._spill is None else torch.cat([in_memory, self._spill.ids()])

    def memory_bytes(self) -> int:
        """The memory use of all rows."""
        return self._rows.memory_bytes() + (0 if self._spill is None else self._spill.memory_bytes())

    def clear(self) -> None:
        """Remove all rows; the clock continues."""
        self._rows = MemoryRows(self._rule.width, self._spec.memory_rows)
        if self._spill is not None:
            self._spill.clear()

    def close(self) -> None:
        """Remove the files on disk."""
        if self._spill is not None:
            self._spill.close()

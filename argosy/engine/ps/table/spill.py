"""The rows of a table that do not fit into memory, in RocksDB.

    key     id, 8 bytes
    value   record, then version

A row is in memory or here, never in both. The store is opened empty, and a restart restores a snapshot: so nothing is
logged or synced.
"""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from argosy.engine.errors import ConfigError

Rows = tuple[Tensor, Tensor, Tensor]
"""ids, records, versions"""
_ID = 8
_WRITE_BUFFER = _CACHE = 32 << 20
_CHUNK_ROWS = 65536


class Spill:
    """Rows on disk by id; the caller holds the table's lock, except for reading the iterator of `changed`."""

    def __init__(self, path: Path, width: int, recent_rows: int) -> None:
        """`recent_rows`: about this many of the newest versions are found without a scan."""
        self._rocks = _rocksdict(path)
        self._path, self._width = path, width
        self._chunk = max(recent_rows, _CHUNK_ROWS)
        self._write = self._rocks.WriteOptions()
        self._write.disable_wal = True
        self._recent_rows = recent_rows
        self._db, self._recent = self._opened(), _RecentVersions(recent_rows)
        self.count = 0
        """The number of rows on disk."""

    def put(self, rows: Rows) -> None:
        """Store rows that are not on disk yet."""
        batch = self._rocks.WriteBatch(raw_mode=True)
        for key, value in zip(_keys(rows[0]), _values(rows), strict=True):
            batch.put(key, value)
        self._db.write(batch, self._write)
        self.count += len(rows[0])
        self._recent.add(rows[0], rows[2])

    def drop(self, ids: Tensor) -> None:
        """Remove rows, all different, that are on disk."""
        batch = self._rocks.WriteBatch(raw_mode=True)
        for key in _keys(ids):
            batch.delete(key)
        self._db.write(batch, self._write)
        self.count -= len(ids)

    def get(self, ids: Tensor) -> tuple[Tensor, Rows]:
        """Which of these ids are on disk, and their rows."""
        values = self._db[_keys(ids)] if self.count and len(ids) else [None] * len(ids)
        is_stored = torch.tensor([value is not None for value in values], dtype=torch.bool)
        records, versions = self._decoded([value for value in values if value is not None])
        return is_stored, (ids[is_stored], records, versions)

    def changed(self, mark: int) -> Iterator[Rows]:
        """The rows with a version above the mark, as of this call."""
        if self._recent.covers(mark):
            _, rows = self.get(self._recent.since(mark))
            return iter([_since(rows, mark)])
        # An iterator of RocksDB reads a snapshot of the time of its creation.
        return self._search(self._db.items(), mark)

    def _search(self, items: Iterable[tuple[Any, Any]], mark: int) -> Iterator[Rows]:
        pairs = iter(items)
        while chunk := list(itertools.islice(pairs, self._chunk)):
            ids = _tensor(b"".join(key for key, _ in chunk), np.int64)
            records, versions = self._decoded([value for _, value in chunk])
            yield _since((ids, records, versions), mark)

    def ids(self) -> Tensor:
        """All ids."""
        return _tensor(b"".join(self._db.keys()), np.int64)

    def clear(self) -> None:
        """Remove all rows."""
        self._db.close()
        self._db, self._recent, self.count = self._opened(), _RecentVersions(self._recent_rows), 0

    def close(self) -> None:
        """Remove the store."""
        self._db.close()
        # An iterator of `changed` may still be open; the next start removes the store.
        with contextlib.suppress(Exception):
            self._rocks.Rdict.destroy(str(self._path))

    def memory_bytes(self) -> int:
        """The memory use of RocksDB and of the recent versions."""
        used = ("cur-size-all-mem-tables", "block-cache-usage", "estimate-table-readers-mem")
        return (
            sum(self._db.property_int_value(f"rocksdb.{name}") or 0 for name in used)
            + self._recent.memory_bytes()
        )

    def _opened(self) -> Any:
        """An empty rocksdict.Rdict."""
        table = self._rocks.BlockBasedOptions()
        table.set_bloom_filter(10, False)  # most lookups are of new ids
        table.set_block_cache(self._rocks.Cache(_CACHE))
        options = self._rocks.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(_WRITE_BUFFER)
        options.set_block_based_table_factory(table)
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            self._rocks.Rdict.destroy(str(self._path))
            return self._rocks.Rdict(str(self._path), options)
        except Exception as e:  # rocksdict raises nothing more precise
            raise ConfigError(
                f"the rows of a table cannot be stored in {self._path}: {e}; give each server its own writable "
                "directory"
            ) from e

    def _decoded(self, values: list[bytes]) -> tuple[Tensor, Tensor]:
        raw = np.frombuffer(b"".join(values), np.uint8).reshape(len(values), 4 * self._width + 8)
        split = 4 * self._width
        records = _tensor(raw[:, :split].tobytes(), np.float32).view(len(values), self._width)
        return records, _tensor(raw[:, split:].tobytes(), np.int64)


class _RecentVersions:
    """The ids and versions of the rows stored last, down to a lowest version."""

    def __init__(self, rows: int) -> None:
        self._most = max(2 * rows, 1024)
        self._parts: list[tuple[Tensor, Tensor]] = []
        self._size = self._floor = 0

    def add(self, ids: Tensor, versions: Tensor) -> None:
        self._parts.append((ids, versions))
        self._size += len(ids)
        if self._size > self._most:
            self._shorten()

    def covers(self, mark: int) -> bool:
        """Whether these are all rows with a version above the mark."""
        return mark >= self._floor

    def since(self, mark: int) -> Tensor:
        """The ids that have, or had, a version above the mark."""
        newer = [ids[versions > mark] for ids, versions in self._parts]
        ids: Tensor = torch.unique(torch.cat([torch.empty(0, dtype=torch.int64), *newer]))
        return ids

    def memory_bytes(self) -> int:
        return 16 * self._size

    def _shorten(self) -> None:
        ids, versions = (torch.cat(tensors) for tensors in zip(*self._parts, strict=True))
        order = torch.argsort(versions, descending=True)
        newest, dropped = order[: self._most // 2], order[self._most // 2 :]
        self._floor = max(self._floor, int(versions[dropped[0]]))
        self._parts, self._size = [(ids[newest], versions[newest])], len(newest)


def _since(rows: Rows, mark: int) -> Rows:
    is_newer = rows[2] > mark
    return rows[0][is_newer], rows[1][is_newer], rows[2][is_newer]


def _keys(ids: Tensor) -> list[bytes]:
    return _pieces(ids.numpy().tobytes(), _ID)


def _values(rows: Rows) -> list[bytes]:
    parts = [np.ascontiguousarray(t.numpy()).reshape(len(t), -1).view(np.uint8) for t in rows[1:]]
    joined = np.concatenate(parts, axis=1)
    return _pieces(joined.tobytes(), joined.shape[1])


def _pieces(raw: bytes, size: int) -> list[bytes]:
    return [raw[i : i + size] for i in range(0, len(raw), size)]


def _tensor(raw: bytes, dtype: Any) -> Tensor:
    tensor: Tensor = torch.from_numpy(np.frombuffer(bytearray(raw), dtype))
    return tensor


def _rocksdict(path: Path) -> Any:
    try:
        import rocksdict
    except ImportError as e:
        raise ConfigError(
            f"a table with memory_rows stores rows in {path}, which needs rocksdict: {e}; "
            "install it, or set memory_rows to 0"
        ) from e
    return rocksdict

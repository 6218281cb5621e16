"""Snapshots of a table: files of the records that changed between two of them.

    tables/  emb-00000001.safetensors     ids, records, versions: all rows of the first snapshot
             emb-00000002.safetensors     the rows that changed until the second one
             …                            reading them in order restores the table

Files are written atomically. The caller lists the current files in its manifest afterwards; a kill before that leaves
files that are not listed, and the next snapshot removes them.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import safetensors
import torch
from safetensors.torch import load, save
from torch import Tensor

from argosy.engine.checksum import checksum
from argosy.engine.disk import Disk
from argosy.engine.errors import ConfigError, CorruptFileError
from argosy.engine.ps.table.spill import Rows

_FORMAT = "argosy.table-segment.1"
_MAX_ROWS = 1 << 20
"""The largest segment: it is copied once to be written."""


class Segments:
    """The files of one table in a folder."""

    def __init__(self, table: str, disk: Disk) -> None:
        """`table`: its name as part of a file's name."""
        self._table, self._disk = table, disk
        self.folder: Path | None = None
        self.names: list[str] = []
        """The files of the last snapshot, in their order."""
        self.rows = 0
        """The number of their records; a row that changed often has several."""

    def write(self, folder: Path, parts: Iterable[Rows], clock: int, is_whole: bool) -> None:
        """Write a snapshot; if it is not whole, it extends the previous one in the same folder."""
        self._disk.make_folder(folder)
        names, rows = ([], 0) if is_whole else (list(self.names), self.rows)
        number = self._last_number(folder)
        for part in _pieces(parts):
            number += 1
            names.append(f"{self._table}-{number:08}.safetensors")
            self._disk.write(folder / names[-1], [_encoded(part, clock)])
            rows += len(part[0])
        self.folder, self.names, self.rows = folder, names, rows

    def read(self, folder: Path, names: Iterable[str]) -> Iterator[tuple[Rows, int]]:
        """The records of each file and the table's clock when it was written; they become the current snapshot."""
        self.folder, self.names, self.rows = folder, list(names), 0
        for name in self.names:
            rows, clock = self._decoded(folder / name)
            self.rows += len(rows[0])
            yield rows, clock

    def remove_others(self, folder: Path, named: Collection[str]) -> None:
        """Remove this table's files that are not named: of incomplete and of older snapshots."""
        for name in self._disk.names(folder):
            if self._number(name) is not None and name not in named:
                self._disk.remove(folder / name)

    def _decoded(self, path: Path) -> tuple[Rows, int]:
        if path.name not in self._disk.names(path.parent):
            raise ConfigError(
                f"segment {path} is missing; give the folder of the snapshot, and the files that it lists"
            )
        try:
            data = self._disk.read(path)
            tensors, head = load(bytes(data)), _metadata(data)
            if head.get("format") != _FORMAT:
                raise ValueError(f"its format is {head.get('format')!r}, not {_FORMAT!r}")
            if json.loads(head["checksums"]) != _sums(tensors, head["clock"]):
                raise ValueError("checksum mismatch")
            return (tensors["ids"], tensors["records"], tensors["versions"]), int(head["clock"])
        except (safetensors.SafetensorError, ValueError, KeyError, AttributeError) as e:
            raise CorruptFileError(
                f"{path} is a corrupt segment of a table: {e}; restore it from a backup, or start from a saved model"
            ) from e

    def _last_number(self, folder: Path) -> int:
        numbers = map(self._number, self._disk.names(folder))
        return max((number for number in numbers if number is not None), default=0)

    def _number(self, name: str) -> int | None:
        """The number of a file of this table, complete or temporary; None for other files."""
        match = re.fullmatch(re.escape(self._table) + r"-(\d{8,})\.safetensors(\.tmp)?", name)
        return int(match[1]) if match else None


def _pieces(parts: Iterable[Rows]) -> Iterator[Rows]:
    """The same rows in non-empty pieces of limited size."""
    for ids, records, versions in parts:
        for at in range(0, len(ids), _MAX_ROWS):
            end = at + _MAX_ROWS
            yield ids[at:end], records[at:end], versions[at:end]


def _encoded(rows: Rows, clock: int) -> bytes:
    tensors = dict(zip(("ids", "records", "versions"), (t.contiguous() for t in rows), strict=True))
    sums = _sums(tensors, str(clock))
    return save(tensors, {"format": _FORMAT, "clock": str(clock), "checksums": json.dumps(sums)})


def _metadata(data: memoryview) -> dict[str, str]:
    """The metadata of a safetensors file: 8 bytes of length, then a header in JSON."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(bytes(data[8 : 8 + length])).get("__metadata__", {})  # type: ignore[no-any-return]


def _sums(tensors: Mapping[str, Tensor], clock: str) -> dict[str, int]:
    sums = {
        name: checksum(value.reshape(-1).view(torch.uint8).numpy().data) for name, value in tensors.items()
    }
    return {**sums, "clock": checksum(clock.encode())}

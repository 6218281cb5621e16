"""Snapshots of a table: files of the records that changed between two of them.

    tables/  emb-00000001.safetensors     ids, records, versions: all rows of the first snapshot
             emb-00000002.safetensors     those that changed until the second one
             …                            whoever reads them in their order has the table

A file is there whole or not at all. Who takes the snapshot writes down the names of the files that count, afterwards;
a kill before that leaves files that nobody names, and the next snapshot removes them.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import re
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import safetensors
import torch
from safetensors.torch import save
from torch import Tensor

from argosy.engine.errors import ConfigError, CorruptFileError
from argosy.engine.files import replacing, sync
from argosy.engine.ps.table.spill import Rows

_FORMAT = "argosy.table-segment.1"
_MOST_ROWS = 1 << 20
"""In one file: that much is copied once more to be written."""


class Segments:
    """The files of one table in a folder."""

    def __init__(self, table: str) -> None:
        """`table`: its name as part of a file's name."""
        self._table = table
        self.folder: Path | None = None
        self.names: list[str] = []
        """The files of the last snapshot, in their order."""
        self.rows = 0
        """How many records they hold; a row that changed often has several."""

    def write(self, folder: Path, parts: Iterable[Rows], clock: int, is_whole: bool) -> None:
        """Write a snapshot; if it is not whole, it adds to the one before, which is in the same folder."""
        folder.mkdir(parents=True, exist_ok=True)
        names, rows = ([], 0) if is_whole else (list(self.names), self.rows)
        number = self._last_number(folder)
        for part in _pieces(parts):
            number += 1
            names.append(f"{self._table}-{number:08}.safetensors")
            _write(folder / names[-1], part, clock)
            rows += len(part[0])
        sync(folder)
        self.folder, self.names, self.rows = folder, names, rows

    def read(self, folder: Path, names: Iterable[str]) -> Iterator[tuple[Rows, int]]:
        """The records of each file and the table's clock when it was written; then these files are the snapshot."""
        self.folder, self.names, self.rows = folder, list(names), 0
        for name in self.names:
            rows, clock = _read(folder / name)
            self.rows += len(rows[0])
            yield rows, clock

    def remove_others(self, folder: Path, named: Collection[str]) -> None:
        """Remove this table's files that are not named: of killed and of older snapshots."""
        if not folder.is_dir():
            return
        for path in folder.iterdir():
            if self._number(path.name) is not None and path.name not in named:
                path.unlink(missing_ok=True)

    def _last_number(self, folder: Path) -> int:
        found = (self._number(path.name) for path in folder.iterdir())
        return max((number for number in found if number is not None), default=0)

    def _number(self, name: str) -> int | None:
        """The number of a file of this table, finished or not; None for all others."""
        found = re.fullmatch(re.escape(self._table) + r"-(\d{8,})\.safetensors(\.tmp)?", name)
        return int(found[1]) if found else None


def _pieces(parts: Iterable[Rows]) -> Iterator[Rows]:
    """The same rows in pieces that are not too large, and none that is empty."""
    for ids, records, versions in parts:
        for at in range(0, len(ids), _MOST_ROWS):
            end = at + _MOST_ROWS
            yield ids[at:end], records[at:end], versions[at:end]


def _write(path: Path, rows: Rows, clock: int) -> None:
    tensors = dict(zip(("ids", "records", "versions"), (t.contiguous() for t in rows), strict=True))
    sums = {name: _crc(value) for name, value in tensors.items()}
    head = {"format": _FORMAT, "clock": str(clock), "crc32": json.dumps(sums)}
    with replacing(path) as file:
        file.write(save(tensors, head))


def _read(path: Path) -> tuple[Rows, int]:
    advice = "restore an older snapshot, or begin anew"
    if not path.is_file():
        raise ConfigError(
            f"there is no segment {path}; give the folder of the snapshot, and the files it names"
        )
    try:
        with safetensors.safe_open(path, framework="pt", backend="pread") as file:
            head = file.metadata() or {}
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no Mapping)
        if head.get("format") != _FORMAT:
            raise ValueError(f"its format is {head.get('format')!r}, not {_FORMAT!r}")
        if json.loads(head["crc32"]) != {name: _crc(value) for name, value in found.items()}:
            raise ValueError("its content does not fit its checksums")
        return (found["ids"], found["records"], found["versions"]), int(head["clock"])
    except (safetensors.SafetensorError, ValueError, KeyError) as e:
        raise CorruptFileError(f"{path} is no whole segment of a table: {e}; {advice}") from e


def _crc(value: Tensor) -> int:
    return zlib.crc32(value.reshape(-1).view(torch.uint8).numpy().data)

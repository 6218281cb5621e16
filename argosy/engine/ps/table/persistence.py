"""A table in files: segments of snapshots, and Paddle's text format.

Segments have the records that changed between two snapshots:

    tables/  emb-00000001.safetensors     ids, records, versions: all rows of the first snapshot
             emb-00000002.safetensors     the rows that changed until the second one
             …                            reading them in order restores the table

Files are written atomically. The caller lists the current files in its manifest afterwards; a kill before that leaves
files that are not listed, and the next snapshot removes them.

The text format has one file of rows and one that describes a row, for each server:

    emb.block0.txt     17 TAB 0.25,-1.5,0.125,        id, then the floats of all fields, each with a comma behind it
    emb.block0.meta    param=emb
                       shard_id=0
                       row_names=Param,Moment
                       row_dims=2,1
                       count=1

Files of Argosy have the id of their save in their names, `emb.block0-1f3a….txt`, so that a save never overwrites
another; the model file of the save lists them.

Paddle writes six digits; Argosy writes nine, so that a float32 round-trips exactly. Paddle 2.1 has three more columns
between the id and the floats (how often a row was seen, for example), which are skipped.
"""

# SPDX-License-Identifier: Apache-2.0
import glob
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TextIO

import safetensors.torch
import torch
from torch import Tensor

from argosy.engine.checksum import checksum
from argosy.engine.disk import Disk
from argosy.engine.errors import ConfigError, CorruptFileError, DataError
from argosy.engine.files import replacing
from argosy.engine.log import logger
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
            tensors, head = safetensors.torch.load(bytes(data)), _metadata(data)
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
    return safetensors.torch.save(
        tensors, {"format": _FORMAT, "clock": str(clock), "checksums": json.dumps(sums)}
    )


def _metadata(data: memoryview) -> dict[str, str]:
    """The metadata of a safetensors file: 8 bytes of length, then a header in JSON."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(bytes(data[8 : 8 + length])).get("__metadata__", {})  # type: ignore[no-any-return]


def _sums(tensors: Mapping[str, Tensor], clock: str) -> dict[str, int]:
    sums = {
        name: checksum(value.reshape(-1).view(torch.uint8).numpy().data) for name, value in tensors.items()
    }
    return {**sums, "clock": checksum(clock.encode())}


Fields = Mapping[str, int]
ProgressCallback = Callable[[int], None]
_CHUNK_ROWS = 65536
_COLUMNS = (2, 5)


def table_folder(directory: Path, name: str) -> Path:
    """Where a table's files are in the directory of a save."""
    return directory / f"{name}_txt"


def remove_other_saves(
    folder: Path, name: str, owns_shard: Callable[[int], bool], current: Collection[str]
) -> None:
    """Remove the files of outdated saves, of the caller's shards; Paddle's files have no save id and stay."""
    pattern = re.compile(rf"{re.escape(name)}\.block(\d+)-([0-9a-f]+)\.(txt|meta)(\.tmp)?")
    for path in folder.iterdir() if folder.is_dir() else ():
        match = pattern.fullmatch(path.name)
        if match and owns_shard(int(match[1])) and match[2] not in current:
            path.unlink(missing_ok=True)


def save_text(
    folder: Path,
    name: str,
    shard: int,
    fields: Fields,
    parts: Iterable[Rows],
    save: str = "",
    progress: ProgressCallback | None = None,
) -> Path:
    """Write `<name>.block<shard>.txt` and `.meta` into the folder; returns the path of the first.

    `save` becomes part of the names; `progress` is called from time to time with the number of written rows.
    """
    path = folder / f"{name}.block{shard}{f'-{save}' if save else ''}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with replacing(path) as file:
        for ids, records, _ in parts:
            for lines, rows in _lines(ids, records):
                file.write(lines)
                count += rows
                if progress is not None:
                    progress(count)
    meta = {
        "param": name,
        "shard_id": shard,
        "row_names": ",".join(fields),
        "row_dims": ",".join(map(str, fields.values())),
        "count": count,
    }
    with replacing(path.with_suffix(".meta")) as file:
        file.write("".join(f"{key}={value}\n" for key, value in meta.items()).encode())
    return path


def files_of_paddle(folder: Path, name: str) -> list[Path]:
    """All files of a table that Paddle saved into a folder."""
    paths = sorted(folder.glob(f"{glob.escape(name)}.block*.txt"))
    if not paths:
        raise DataError(
            f"there is no {name}.block*.txt in {folder}; give the folder that the table was saved to"
        )
    return paths


def load_text(paths: Iterable[Path], fields: Fields) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """The rows of these files, whichever server wrote them, in parts: ids, and the fields that the table has."""
    for path in paths:
        yield from _rows_of(path, fields)


def _rows_of(path: Path, wanted: Fields) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    meta = _read_meta(path.with_suffix(".meta"))
    fields = _fields(path.with_suffix(".meta"), meta, wanted)
    width, count = sum(fields.values()), 0
    with path.open() as file:
        for ids, floats in _parsed(path, file, width):
            parts = dict(zip(fields, floats.split(list(fields.values()), dim=1), strict=True))
            yield ids, {field: parts[field] for field in wanted if field in parts}
            count += len(ids)
    if str(count) != meta["count"]:
        raise CorruptFileError(
            f"{path} has {count} rows and its .meta says {meta['count']}; save the table again"
        )


def _read_meta(path: Path) -> dict[str, str]:
    if not path.is_file():
        raise DataError(f"there is no {path}, which describes the rows; copy it beside the .txt")
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    meta = dict(line.split("=", 1) for line in lines if "=" in line)
    missing = {"row_names", "row_dims", "count"} - meta.keys()
    if missing:
        raise CorruptFileError(f"{path} has no line {min(missing)}=…; save the table again")
    return meta


def _fields(path: Path, meta: Mapping[str, str], wanted: Fields) -> dict[str, int]:
    """The fields of the rows in a file; logs a warning for unused fields."""
    names, dims = meta["row_names"].split(","), meta["row_dims"].split(",")
    if len(names) != len(dims) or not all(dim.isdecimal() for dim in dims) or "Param" not in names:
        raise CorruptFileError(
            f"{path} has row_names={meta['row_names']} and row_dims={meta['row_dims']}; "
            "it must have a size for each name, and Param among them"
        )
    fields = dict(zip(names, map(int, dims), strict=True))
    for field in fields.keys() & wanted.keys():
        if fields[field] != wanted[field]:
            raise DataError(
                f"{path}: {field} has {fields[field]} floats and the table has {wanted[field]}; load it into a "
                "table with rows of that size"
            )
    if unused := fields.keys() - wanted.keys():
        logger.warning("%s: the table's optimizer has no %s; ignoring it", path, ", ".join(sorted(unused)))
    if missing := wanted.keys() - fields.keys():
        logger.warning("%s has no %s: the optimizer starts from zero state", path, ", ".join(sorted(missing)))
    return fields


def _parsed(path: Path, file: TextIO, width: int) -> Iterator[tuple[Tensor, Tensor]]:
    ids: list[int] = []
    floats: list[list[float]] = []
    for number, line in enumerate(file, start=1):
        try:
            row_id, row = _parsed_line(line, width)
        except (ValueError, OverflowError) as e:
            raise CorruptFileError(f"{path}:{number}: {e}; save the table again, or remove the line") from e
        ids.append(row_id)
        floats.append(row)
        if len(ids) == _CHUNK_ROWS:
            yield torch.tensor(ids), torch.tensor(floats)
            ids, floats = [], []
    if ids:
        yield torch.tensor(ids), torch.tensor(floats)


def _parsed_line(line: str, width: int) -> tuple[int, list[float]]:
    columns = line.rstrip("\n").split("\t")
    if len(columns) not in _COLUMNS:
        raise ValueError(f"{len(columns)} columns with tabs between them, not an id and its floats")
    row_id = int(columns[0])
    if not -(1 << 63) <= row_id < 1 << 64:
        raise ValueError(f"the id {row_id} has more than 64 bits")
    floats = [float(word) for word in columns[-1].removesuffix(",").split(",")]
    if len(floats) != width:
        raise ValueError(f"{len(floats)} floats, not {width}")
    return row_id if row_id < 1 << 63 else row_id - (1 << 64), floats  # Paddle's ids are unsigned


def _lines(ids: Tensor, records: Tensor) -> Iterator[tuple[bytes, int]]:
    """Lines of text, and their number."""
    template = "%d\t" + "%.9g," * records.shape[1] + "\n"
    for at in range(0, len(ids), _CHUNK_ROWS):
        rows = zip(ids[at : at + _CHUNK_ROWS].tolist(), records[at : at + _CHUNK_ROWS].tolist(), strict=True)
        lines = [template % (row_id, *floats) for row_id, floats in rows]
        yield "".join(lines).encode(), len(lines)

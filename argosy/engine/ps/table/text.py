"""A table in Paddle's text format: one file of rows and one that describes a row, for each server.

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
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TextIO

import torch
from torch import Tensor

from argosy.engine.errors import CorruptFileError, DataError
from argosy.engine.files import replacing
from argosy.engine.log import logger
from argosy.engine.ps.table.spill import Rows

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
    """Write `<name>.block<shard>.txt` and `.meta` into the folder; the path of the first.

    `save` becomes part of the names; `progress` is called from time to time how many rows are written.
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

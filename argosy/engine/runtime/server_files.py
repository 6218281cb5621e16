"""Saved state of parameter servers: written by them and one trainer, loaded by any number of servers.

    __vars__                    dense values, as one process would save them; lists the files below, with checksums
    users_txt/                  rows of the table users, one file per server

The file of the dense values is renamed last, which commits the save.
"""

# SPDX-License-Identifier: Apache-2.0
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from argosy.engine.checksum import checksum_of
from argosy.engine.errors import CorruptFileError, DataError
from argosy.engine.ps.table.persistence import files_of_paddle, table_folder
from argosy.engine.ps.trainer.trainer import Trainer
from argosy.engine.runtime import atomic_files
from argosy.engine.runtime.scope import Scope


def save(trainer: Trainer, local: Mapping[str, torch.Tensor], path: Path) -> None:
    """Save the state of the servers, and the `local` values that only this trainer has."""
    values = {**local, **trainer.blocks.state()}
    path.parent.mkdir(parents=True, exist_ok=True)
    sums, number = atomic_files.checksums(values), secrets.token_hex(8)
    folder = str(path.parent.absolute())
    files = trainer.save_tables(folder, number) if trainer.plan.tables else {}
    more = {"servers": len(trainer.plan.endpoints), "tables": files} if files else None
    atomic_files.replace_files({path: atomic_files.tensor_writer(values, sums, number, more)})
    if files:
        trainer.commit_save(folder, number)


def send_pending_changes(trainer: Trainer, scope: Scope) -> None:
    """Send local changes that were not sent yet to the servers; geo: and merge the changes of other trainers."""
    if trainer.plan.mode == "geo" and trainer.geo.has_begun:
        trainer.geo.synchronize({variable.name: scope.get(variable.name) for variable in trainer.plan.dense})
    elif trainer.plan.mode == "async":
        trainer.send_rest()


def check(path: Path) -> None:
    """Raise if a save is incomplete or corrupt, as far as this host has its files."""
    atomic_files.read_tensors(path)
    manifest = atomic_files.read_more(path)
    for name, checksum in manifest["tables"].items() if manifest else ():
        _check(path.parent / name, checksum)


def remove(path: Path) -> None:
    """Delete a save, its tables first."""
    manifest = atomic_files.read_more(path) if path.is_file() else None
    for folder in {Path(name).parent for name in manifest["tables"]} if manifest else ():
        shutil.rmtree(path.parent / folder, ignore_errors=True)
    path.unlink(missing_ok=True)


def files_of(
    directory: Path, table: str, manifest: Mapping[str, Any] | None, server: int, servers: int
) -> list[Path]:
    """The files of a table, with verified checksums; only those of this server if the number of servers is the same.

    `manifest`: from the file of the dense values; None: saved by Paddle, all files are used.
    """
    folder = table_folder(directory, table)
    if manifest is None:
        return files_of_paddle(folder, table)
    prefix = f"{folder.name}/{table}.block" + (f"{server}-" if manifest["servers"] == servers else "")
    checksums = {
        directory / name: sum_ for name, sum_ in manifest["tables"].items() if name.startswith(prefix)
    }
    if not checksums:
        raise DataError(f"{directory} was saved without a table {table!r}; give another directory")
    for path, checksum in checksums.items():
        _check(path, checksum)
    return sorted(path for path in checksums if path.suffix == ".txt")


def _check(path: Path, checksum: int) -> None:
    if not path.is_file():
        raise DataError(
            f"{path}, which belongs to the save, does not exist; restore it, or load another save"
        )
    if checksum_of(path) != checksum:
        raise CorruptFileError(f"{path} does not match its checksum; take an intact copy, or save again")

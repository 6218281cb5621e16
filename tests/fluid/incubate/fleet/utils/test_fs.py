"""LocalFS: files and directories of this host."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from argosy.engine.errors import ConfigError
from argosy.fluid.incubate.fleet.utils.fs import LocalFS


def test_files_and_directories(tmp_path: Path) -> None:
    fs, folder = LocalFS(), str(tmp_path / "a" / "b")
    fs.mkdirs(folder)
    fs.mkdirs(folder)
    fs.touch(f"{folder}/file")
    fs.mkdirs(f"{folder}/c")
    assert fs.ls_dir(folder) == (["c"], ["file"])
    assert (fs.list_dirs(folder), fs.ls_dir(f"{folder}/nothing")) == (["c"], ([], []))
    assert (fs.is_file(f"{folder}/file"), fs.is_dir(f"{folder}/c"), fs.is_exist(f"{folder}/x")) == (
        *(True, True, False),
    )
    with pytest.raises(FileExistsError):
        fs.touch(f"{folder}/file", exist_ok=False)
    with pytest.raises(ConfigError, match="is a file; give the path of a directory"):
        fs.mkdirs(f"{folder}/file")


def test_moving_and_deleting(tmp_path: Path) -> None:
    fs, first, second = LocalFS(), str(tmp_path / "first"), str(tmp_path / "second")
    fs.touch(first)
    fs.mkdirs(second)
    with pytest.raises(ConfigError, match="second exists; pass overwrite=True"):
        fs.mv(first, second)
    fs.mv(first, second, overwrite=True)
    assert fs.is_file(second)
    fs.delete(second)
    fs.delete(second)
    assert fs.ls_dir(str(tmp_path)) == ([], [])
    assert not fs.need_upload_download()

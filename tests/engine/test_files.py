"""Files that are whole or not there."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from argosy.engine.files import replacing, sync


def test_a_file_is_replaced_when_all_of_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert [one.name for one in tmp_path.iterdir()] == ["data"]


def test_a_writer_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"old")

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"ne")
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        fail()
    assert path.read_bytes() == b"old"


def test_files_and_folders_can_be_waited_for(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x")
    sync(tmp_path / "data")
    sync(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "nothing")

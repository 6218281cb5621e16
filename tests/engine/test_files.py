"""Files that are whole or not there."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from argosy.engine.files import lock, locked, replacement, replacing, sync


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


def test_several_writers_replace_a_file_without_disturbing_each_other(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with replacement(path) as first, replacement(path) as second:
        first.write_bytes(b"first")
        second.write_bytes(b"second")
    assert path.read_bytes() == b"first"  # the last to finish
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"old")

    def fail() -> None:
        with replacement(path) as new:
            new.write_bytes(b"half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert [entry.read_bytes() for entry in tmp_path.iterdir()] == [b"old"]


def test_a_lock_is_held_until_the_end_of_its_scope(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path), path.open("w") as other, pytest.raises(BlockingIOError):
        lock(other, blocks=False)
    with path.open("w") as other:
        lock(other, blocks=False)

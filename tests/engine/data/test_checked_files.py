"""Checked files: checksums, atomic creation, and concurrent processes."""

import hashlib
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from argosy.engine.data.checked_files import (
    MANIFEST,
    check,
    create_once,
    derive,
    locked,
    present,
)
from argosy.engine.errors import CorruptFileError, DataError


def make(folder: Path) -> None:
    with (folder / "created.txt").open("a") as log:
        log.write("once\n")
    (folder / "data.bin").write_bytes(b"abc" * 1000)


def slowly(folder: Path) -> None:
    make(folder)
    time.sleep(0.2)


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def test_valid_checksums_pass_and_an_invalid_one_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    check(tmp_path, {"a": md5(b"a"), "b": hashlib.sha256(b"b").hexdigest()}, "do this")
    with pytest.raises(CorruptFileError, match=r"/b \(1 bytes\) has checksum .*; do this"):
        check(tmp_path, {"a": md5(b"a"), "b": md5(b"x")}, "do this")


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match="/a is missing; do this"):
        check(tmp_path, {"a": md5(b"a")}, "do this")


def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"a")
    check(tmp_path, {"a": md5(b"a")}, "")
    before = path.stat()
    path.write_bytes(b"b")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as if nothing had happened
    check(tmp_path, {"a": md5(b"a")}, "")
    os.utime(path)
    with pytest.raises(CorruptFileError):
        check(tmp_path, {"a": md5(b"a")}, "")


def test_a_corrupt_checksum_cache_only_costs_another_check(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / ".checked.json").write_text("{")
    check(tmp_path, {"a": md5(b"a")}, "")


def test_a_folder_is_created_once(tmp_path: Path) -> None:
    folder = tmp_path / "sub" / "set"
    create_once(folder, 1, make)
    create_once(folder, 1, make)
    assert (folder / "created.txt").read_text() == "once\n"


def test_another_version_is_created_again(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    create_once(folder, 1, make)
    create_once(folder, 2, lambda new: (new / "other").touch())
    assert {p.name for p in folder.iterdir() if not p.name.startswith(".")} == {"other", MANIFEST}


def test_concurrent_processes_create_it_once(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=create_once, args=(folder, 1, slowly)) for _ in range(4)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert [rank.exitcode for rank in ranks] == [0, 0, 0, 0]
    assert (folder / "created.txt").read_text() == "once\n"
    assert [p.name for p in tmp_path.iterdir() if "making" in p.name] == []


def test_a_failed_creation_leaves_nothing(tmp_path: Path) -> None:
    def fails(folder: Path) -> None:
        make(folder)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        create_once(tmp_path / "set", 1, fails)
    assert [p.name for p in tmp_path.iterdir()] == [".set.lock"]
    create_once(tmp_path / "set", 1, make)


def test_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    left = tmp_path / ".set.making-123"
    left.mkdir()
    (left / "half").write_bytes(b"x")
    create_once(tmp_path / "set", 1, make)
    assert not left.exists()


@pytest.mark.parametrize("damage", ["truncate", "alter", "remove", "manifest"])
def test_a_corrupt_folder_is_rejected_with_advice(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "set"
    create_once(folder, 1, make)
    data = folder / "data.bin"
    if damage == "truncate":
        data.write_bytes(data.read_bytes()[:-1])
    elif damage == "alter":
        data.write_bytes(b"abd" * 1000)
    elif damage == "remove":
        data.unlink()
    else:
        (folder / MANIFEST).write_text("[]")
    named = MANIFEST if damage == "manifest" else "data.bin"
    with pytest.raises(
        CorruptFileError, match=rf"{named}.*delete the folder .*/set to have it created again"
    ):
        create_once(folder, 1, make)


def test_a_derived_file_follows_its_source(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "upper"
    created: list[int] = []

    def upper(path: Path) -> None:
        created.append(1)
        path.write_bytes(source.read_bytes().upper())

    source.write_bytes(b"a")
    assert derive(source, target, upper).read_bytes() == b"A"
    derive(source, target, upper)
    assert len(created) == 1
    target.write_bytes(b"?!")
    assert derive(source, target, upper).read_bytes() == b"A"
    source.write_bytes(b"bb")
    assert derive(source, target, upper).read_bytes() == b"BB"


def test_all_or_none_of_the_files_must_exist(tmp_path: Path) -> None:
    assert not present(tmp_path, ["a", "b"])
    (tmp_path / "a").touch()
    with pytest.raises(DataError, match="without b;"):
        present(tmp_path, ["a", "b"])
    (tmp_path / "b").touch()
    assert present(tmp_path, ["a", "b"])


def test_a_folder_that_is_not_writable_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(DataError, match=r"cannot write in .*/file/sub .*ARGOSY_CACHE"),
        locked(tmp_path / "file/sub/x"),
    ):
        pass

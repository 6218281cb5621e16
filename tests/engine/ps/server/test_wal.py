"""What a server keeps on disk: records that are whole or not there, snapshots that replace each other."""

# SPDX-License-Identifier: Apache-2.0
import errno
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from argosy.engine.disk import Buffer, Disk
from argosy.engine.errors import CorruptFileError
from argosy.engine.ps.server.wal import PREAMBLE, WriteAheadLog, encode_record


def append(wal: WriteAheadLog, n: int) -> None:
    wal.append(encode_record("step", {"n": n}, [torch.full((3,), float(n)), torch.tensor([[n]])]))


def read(directory: Path) -> list[tuple[str, int, list[Tensor]]]:
    return [
        (record.kind, record.meta["n"], tensors) for record, tensors in WriteAheadLog(directory).records()
    ]


def numbers(directory: Path) -> list[int]:
    return [n for _, n, _ in read(directory)]


def snapshot(wal: WriteAheadLog, value: float) -> None:
    wal.snapshot(wal.begin_log(), {"w": torch.full((2,), value)}, {"more": 1})


def written(directory: Path, count: int, disk: Disk | None = None) -> WriteAheadLog:
    wal = WriteAheadLog(directory, disk)
    snapshot(wal, 0.0)
    for n in range(count):
        append(wal, n)
    return wal


def log_of(directory: Path) -> Path:
    (path,) = directory.glob("log.*")
    return path


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    written(tmp_path, 3).close()
    records = read(tmp_path)
    assert [(kind, n) for kind, n, _ in records] == [("step", 0), ("step", 1), ("step", 2)]
    assert records[2][2][0].tolist() == [2.0, 2.0, 2.0]
    assert records[2][2][1].tolist() == [[2]]


def test_a_truncated_record_is_dropped_and_the_log_continues_after_it(tmp_path: Path) -> None:
    written(tmp_path, 2).close()
    path = log_of(tmp_path)
    whole = path.read_bytes()
    record = (len(whole) - len(PREAMBLE)) // 2
    for length in range(len(PREAMBLE) + record + 1, len(whole), 7):
        path.write_bytes(whole[:length])
        again = WriteAheadLog(tmp_path)
        assert len(list(again.records())) == 1
        append(again, 9)
        again.close()
        assert numbers(tmp_path) == [0, 9]
        (tmp_path / "log.2").unlink()


def test_a_log_that_was_killed_at_its_first_bytes_is_empty(tmp_path: Path) -> None:
    written(tmp_path, 0).close()
    for length in range(len(PREAMBLE)):
        log_of(tmp_path).write_bytes(PREAMBLE[:length])
        assert numbers(tmp_path) == []


def test_every_flipped_bit_of_a_log_is_an_error_that_names_the_record_and_changes_nothing(
    tmp_path: Path,
) -> None:
    written(tmp_path, 3).close()
    path = log_of(tmp_path)
    whole = path.read_bytes()
    record = (len(whole) - len(PREAMBLE)) // 3
    for place in range(len(PREAMBLE), len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << (place % 8)
        path.write_bytes(data)
        number, at = (place - len(PREAMBLE)) // record, (place - len(PREAMBLE)) // record * record
        named = rf"log\.1 is corrupt: record {number + 1}, at byte {len(PREAMBLE) + at}: the checksum of its \w+ does"
        with pytest.raises(CorruptFileError, match=named):
            read(tmp_path)
        assert path.read_bytes() == bytes(data), "the evidence stays"


def test_a_file_that_is_no_log_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, 1).close()
    log_of(tmp_path).write_bytes(b"something else, and longer")
    with pytest.raises(CorruptFileError, match="is not a log of a parameter server"):
        read(tmp_path)


def test_a_log_that_is_missing_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, 1).close()
    log_of(tmp_path).unlink()
    with pytest.raises(CorruptFileError, match=r"log\.1 is missing: the manifest lists it"):
        read(tmp_path)


def test_a_gap_between_logs_is_an_error(tmp_path: Path) -> None:
    wal = written(tmp_path, 1)
    for n in (1, 2):
        wal.begin_log()
        append(wal, n)
    wal.close()
    assert numbers(tmp_path) == [0, 1, 2]
    (tmp_path / "log.2").unlink()
    with pytest.raises(CorruptFileError, match=r"log\.2 is missing"):
        read(tmp_path)


def test_a_record_that_is_cut_off_in_a_log_that_others_follow_is_an_error(tmp_path: Path) -> None:
    wal = written(tmp_path, 2)
    wal.begin_log()
    append(wal, 2)
    wal.close()
    first = tmp_path / "log.1"
    first.write_bytes(first.read_bytes()[:-1])
    with pytest.raises(
        CorruptFileError, match=r"log\.1 is corrupt: record 2.*truncated, and another log follows"
    ):
        read(tmp_path)


def test_a_snapshot_replaces_the_log_and_the_old_state(tmp_path: Path) -> None:
    wal = written(tmp_path, 3)
    snapshot(wal, 1.0)
    assert read(tmp_path) == []
    assert WriteAheadLog(tmp_path).state()["w"].tolist() == [1.0, 1.0]
    assert len(os.listdir(tmp_path)) == 3, "state, log and manifest"


def test_every_flipped_byte_of_a_state_or_a_manifest_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, 1).close()
    for name in ("state.1.safetensors", "manifest.json"):
        path = tmp_path / name
        whole = path.read_bytes()
        for place in range(len(whole)):
            data = bytearray(whole)
            data[place] ^= 0x40
            path.write_bytes(data)
            with pytest.raises(CorruptFileError, match=rf"{path} is (corrupt|no manifest)"):
                WriteAheadLog(tmp_path).state()
        path.write_bytes(whole)


class FullDisk(Disk):
    """Has no room for whole files while `is_full`; logs can be written."""

    is_full = False

    def write(self, path: Path, parts: Iterable[Buffer]) -> None:
        if self.is_full:
            path.with_name(path.name + ".tmp").write_bytes(b"half of")
            raise OSError(errno.ENOSPC, "no space left on device")
        super().write(path, parts)


def test_a_snapshot_that_fails_leaves_the_one_before_it_and_all_records(tmp_path: Path) -> None:
    disk = FullDisk()
    wal = written(tmp_path, 3, disk)
    for n in range(3, 6):
        disk.is_full = True
        with pytest.raises(OSError, match="no space left"):
            snapshot(wal, 9.0)
        disk.is_full = False
        append(wal, n)
    wal.close()
    again = WriteAheadLog(tmp_path)
    assert again.state()["w"].tolist() == [0.0, 0.0]
    assert numbers(tmp_path) == [0, 1, 2, 3, 4, 5]
    list(again.records())
    append(again, 6)
    snapshot(again, 2.0)
    append(again, 7)
    again.close()
    assert numbers(tmp_path) == [7]
    assert len(os.listdir(tmp_path)) == 3, "what the failed snapshots left is gone"

"""Reading a log that grows."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from argosy.engine.cluster.slurm_follow import GrowingFile


def test_lines_are_read_once_when_they_are_complete(tmp_path: Path) -> None:
    log, path = GrowingFile(), tmp_path / "slurm-1.out"
    assert list(log.new_lines(str(path))) == []  # the job has not started
    path.write_bytes(b"first\nsec")
    assert list(log.new_lines(str(path))) == ["first"]
    with path.open("ab") as file:
        file.write(b"ond\r\n\xff third")
    assert list(log.new_lines(str(path))) == ["second\r"]
    assert list(log.new_lines(str(path))) == []
    assert list(log.last_line()) == ["\ufffd third"]


def test_a_truncated_log_is_read_from_its_beginning(tmp_path: Path) -> None:
    log, path = GrowingFile(), tmp_path / "slurm-1.out"
    path.write_text("first start\n")
    assert list(log.new_lines(str(path))) == ["first start"]
    path.write_text("second\n")
    assert list(log.new_lines(str(path))) == ["second"]

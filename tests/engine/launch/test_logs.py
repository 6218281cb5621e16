"""Log files: a new run never appends to an old one."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.launch import logs


def test_the_last_five_runs_are_kept(tmp_path: Path) -> None:
    for run in range(8):
        logs.rotate(str(tmp_path))
        (tmp_path / "workerlog.0").write_text(str(run))
    contents = {p.name: p.read_text() for p in tmp_path.iterdir()}
    assert contents == {"workerlog.0": "7"} | {f"workerlog.0.{i}": str(7 - i) for i in range(1, 6)}


def test_logs_of_more_ranks_than_the_next_run_has_are_rotated_too(tmp_path: Path) -> None:
    names = ("workerlog.0", "workerlog.11", "serverlog.1", "endpoints.log", "fleetrun.log", "mine.log")
    for name in names:
        (tmp_path / name).touch()
    logs.rotate(str(tmp_path), restarts=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        *("endpoints.log.1", "fleetrun.log", "mine.log", "serverlog.1.1", "workerlog.0.1", "workerlog.11.1"),
    ]


def test_error_files_are_rotated_with_the_logs_of_their_processes(tmp_path: Path) -> None:
    for run in range(8):
        logs.rotate(str(tmp_path))
        (tmp_path / "workerlog.0").write_text(str(run))
        if run % 2:
            (tmp_path / "workererror.0").write_text(str(run))
    errors = {p.name: p.read_text() for p in tmp_path.iterdir() if "error" in p.name}
    assert errors == {"workererror.0": "7", "workererror.0.2": "5", "workererror.0.4": "3"}
    assert logs.error_file("log/serverlog.1.1") == "log/servererror.1.1"


def test_endpoints_are_written_as_paddle_does(tmp_path: Path) -> None:
    path = logs.write_endpoints(str(tmp_path), {"PADDLE_TRAINER_ENDPOINTS": ["a:1", "b:2"]})
    assert Path(path).read_text() == "PADDLE_TRAINER_ENDPOINTS: \na:1\nb:2"
    logs.write_endpoints(str(tmp_path), {"S": ["s:1"], "T": ["a:1", "b:2"]})
    assert Path(path).read_text() == "S: \ns:1\nT: \na:1\nb:2"


def test_a_directory_that_is_not_writable_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in (tmp_path / "file", tmp_path / "file" / "log", Path("/proc/nothing")):
        with pytest.raises(ConfigError, match=f"--log_dir={name}: cannot write there"):
            logs.prepare(str(name))


def test_the_end_of_a_long_log_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"line\n" * 200_000 + b"\xff last")
    assert logs.last_lines(str(path), 2) == ["line", "\ufffd last"]
    assert logs.last_lines(str(tmp_path / "missing"), 2) == []

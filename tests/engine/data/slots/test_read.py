"""Reading files through a command: order, errors, and that no process is left."""

# SPDX-License-Identifier: Apache-2.0
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from argosy.engine.data.slots.read import RecordStream
from argosy.engine.data.slots.slot import SlotSpec
from argosy.engine.errors import DataError

SLOTS = (SlotSpec("y", False, (-1, 1)),)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    gc.collect()
    left = [c for c in psutil.Process().children(recursive=True) if c.pid not in before]
    assert not left
    assert not [t.name for t in threading.enumerate() if t.name == "argosy-slots"]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Five files of 1000 records each; file i has i * 1000, i * 1000 + 1, …"""
    paths = [tmp_path / f"part {i}" for i in range(5)]  # with a blank in the name
    for i, path in enumerate(paths):
        path.write_text("".join(f"1 {i * 1000 + k}\n" for k in range(1000)))
    return [str(path) for path in paths]


def values(stream: RecordStream) -> list[int]:
    return [value for part in stream for value in part.ints.tolist()]


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_one_reader_keeps_the_order_of_the_files(files: list[str]) -> None:
    assert values(RecordStream(files, "cat", SLOTS, 1)) == list(range(5000))


def test_several_readers_read_every_record_once(files: list[str]) -> None:
    assert sorted(values(RecordStream(files, "cat", SLOTS, 3))) == list(range(5000))


def test_each_file_goes_through_the_command(files: list[str]) -> None:
    read = values(RecordStream(files, "head -n 2 | sed 's/$/1/'", SLOTS, 2))
    assert sorted(read) == sorted(int(f"{i * 1000 + k}1") for i in range(5) for k in (0, 1))


def test_a_record_may_be_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_text(f"200000 {' '.join(['7'] * 200000)}\n1 8")  # and the last line has no end
    parts = list(RecordStream([str(path)], "cat", (SlotSpec("y", False, (-1, -1)),), 1))
    assert [count for part in parts for count in part.counts.ravel().tolist()] == [200000, 1]


def test_python_is_this_one_and_hashes_of_text_are_the_same_in_every_process(tmp_path: Path) -> None:
    script = tmp_path / "reader.py"
    script.write_text("import sys\nprint(2, hash('text') % 1000, hash(sys.executable) % 1000)\n")
    slots = (SlotSpec("y", False, (-1, -1)),)
    read = values(RecordStream([str(script)] * 2, f"python {script}", slots, 2))
    assert read[:2] == read[2:]
    command = (
        f"python -c 'import sys; print(len(sys.executable.split()), sys.executable == \"{sys.executable}\")'"
    )
    with pytest.raises(DataError, match="'True'"):
        values(RecordStream([str(script)], command, slots, 1))


@pytest.mark.parametrize("threads", [1, 3])
def test_a_command_that_fails_is_reported_with_its_code_and_stderr(files: list[str], threads: int) -> None:
    command = "cat; echo no such column >&2; exit 3"
    with pytest.raises(DataError) as caught:
        values(RecordStream(files, command, SLOTS, threads))
    assert "exit code 3 on" in str(caught.value)
    assert str(caught.value).endswith("no such column")
    assert command in str(caught.value)


def test_a_command_that_is_killed_is_reported_with_the_signal(files: list[str]) -> None:
    with pytest.raises(DataError, match="ended with signal SIGKILL"):
        values(RecordStream(files, "kill -9 $$", SLOTS, 1))


def test_the_stderr_of_a_successful_command_is_logged(
    files: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("argosy").addHandler(caplog.handler)
    try:
        values(RecordStream(files[:1], "cat; echo odd line 7 >&2", SLOTS, 1))
    finally:
        logging.getLogger("argosy").removeHandler(caplog.handler)
    assert "odd line 7" in caplog.text


def test_a_malformed_line_is_reported_with_file_and_command(files: list[str]) -> None:
    Path(files[1]).write_text("1 5\n1 5\n2 5\n")
    with pytest.raises(DataError, match="part 1, line 3 ends in slot 'y'"):
        values(RecordStream(files, "cat", SLOTS, 1))
    with pytest.raises(DataError, match="the output of 'head -n 3' on .*part 1, line 3"):
        values(RecordStream(files, "head -n 3", SLOTS, 1))


def test_a_missing_file_is_reported(files: list[str]) -> None:
    with pytest.raises(DataError, match="/nowhere cannot be read: No such file"):
        values(RecordStream([files[0], "/nowhere"], "cat", SLOTS, 1))


def test_closing_kills_endless_processes(tmp_path: Path, files: list[str]) -> None:
    note = tmp_path / "pids"
    command = f"echo $$ >> '{note}'; sleep 1000 & yes '1 5'"
    stream = RecordStream(files, command, SLOTS, 2)
    next(stream)
    until(lambda: note.exists() and len(note.read_text().split()) == 2)
    pids = [int(pid) for pid in note.read_text().split()]
    groups = [os.getpgid(pid) for pid in pids]
    stream.close()
    assert next(stream, None) is None
    until(lambda: not any(map(_is_alive, groups)))


def test_a_garbage_collected_stream_stops(files: list[str]) -> None:
    stream = RecordStream(files, "yes '1 5'", SLOTS, 2)
    next(stream)
    del stream


def test_readers_do_not_run_far_ahead(tmp_path: Path) -> None:
    """An endless command writes no more than a few parts while they are not consumed."""
    path = tmp_path / "empty"
    path.touch()
    note = tmp_path / "written"
    script = tmp_path / "endless.py"
    script.write_text(
        "import os, sys\n"
        "line = b'1 5\\n' * 4096\n"
        f"with open({str(note)!r}, 'wb', buffering=0) as note:\n"
        "    while True:\n"
        "        sys.stdout.buffer.write(line)\n"
        "        sys.stdout.buffer.flush()\n"
        "        note.write(b'.')\n"
    )
    stream = RecordStream([str(path)], f"python {script}", SLOTS, 1)
    next(stream)
    time.sleep(1.0)
    assert note.stat().st_size * 4 * 4096 < 2**22
    stream.close()


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True

"""Logs: their last lines, what is added, what a search finds; all bounded."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from argosy.dashboard import log_files


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "workerlog.0"


def test_a_line_that_is_still_written_is_left_for_the_next_call(log: Path) -> None:
    log.write_bytes(b"one\ntwo")
    first = log_files.tail(log)
    assert [text for text, _ in first["lines"]] == ["one"]
    log.write_bytes(b"one\ntwo\n")
    assert [text for text, _ in log_files.tail(log, after=first["end"])["lines"]] == ["two"]


def test_a_long_log_is_read_from_its_end_and_backwards(log: Path) -> None:
    log.write_text("".join(f"line {i}\n" for i in range(100_000)))
    last = log_files.tail(log)
    assert len(last["lines"]) == log_files.MAX_LINES
    assert last["lines"][-1] == ["line 99999", 0]
    before = log_files.tail(log, before=last["start"])
    first_number = int(last["lines"][0][0].split()[1])
    assert before["lines"][-1] == [f"line {first_number - 1}", 0]


def test_lines_that_come_faster_than_they_are_read_are_skipped_and_that_is_said(log: Path) -> None:
    log.write_text("".join(f"line {i}\n" for i in range(100_000)))
    rest = log_files.tail(log, after=7)
    assert rest["skipped"]
    assert rest["end"] == log.stat().st_size


def test_a_log_that_was_replaced_by_a_shorter_one_is_read_anew(log: Path) -> None:
    log.write_text("new\n")
    assert log_files.tail(log, after=5_000)["lines"] == [["new", 0]]


def test_control_sequences_and_progress_bars_are_removed() -> None:
    assert log_files.parse(b"\x1b[1mbold\x1b[0m \x07text").text == "bold text"
    assert log_files.parse(b"10 %\r50 %\r100 %").text == "100 %"
    assert log_files.parse(b"windows\r").text == "windows"
    assert log_files.parse(b"\xff\xfe").text == "��"
    assert len(log_files.parse(b"x" * 100_000).text) < 2_010


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("Traceback (most recent call last):", 2),
        ("argosy.engine.errors.ConfigError: batch 3", 2),
        ("RankFailed: rank 3", 2),
        ("2026-01-01 ERROR disk full", 2),
        ("UserWarning: slow", 1),
        ("error rate: 0.1", 0),
        ("mean_absolute_error 0.2", 0),
    ],
)
def test_errors_are_told_from_words_that_look_like_them(line: str, level: int) -> None:
    assert log_files.parse(line.encode()).level == level


def test_a_search_is_bounded_and_counts_everything(log: Path) -> None:
    log.write_text("batch\n" * 5_000 + "ValueError: batch\n")
    result = log_files.search(log.parent, [log.name], "Batch")
    assert result["count"] == 5_001
    assert len(result["matches"]) == log_files.MAX_MATCHES
    assert result["matches"][0] == [log.name, 5_001, "ValueError: batch", 2]


def test_a_line_without_an_end_does_not_fill_the_memory(log: Path) -> None:
    log.write_bytes(b"x" * (5 << 20) + b"needle")
    assert log_files.search(log.parent, [log.name], "needle")["count"] == 1
    assert len(log_files.tail(log)["lines"][0][0]) < 2_010


def test_exceptions_come_first_then_failed_processes() -> None:
    names = ["fleetrun.log", "workerlog.10", "workerlog.2", "workererror.2", "serverlog.0"]
    assert log_files.order(names, {"workerlog.10"}) == [
        "workererror.2",
        "workerlog.10",
        "serverlog.0",
        "workerlog.2",
        "fleetrun.log",
    ]

"""Records of all nodes in the directory of node 0: what is sent, what is rejected, and a real job of two launchers."""

# SPDX-License-Identifier: Apache-2.0
import random
from pathlib import Path
from typing import Any

import pytest

from argosy.engine.launch.record_forwarding import (
    KEPT_LOG_BYTES,
    LOG_BYTES,
    MAX_CHARACTERS,
    RecordFiles,
    RecordForwarder,
)
from argosy.engine.metrics.job_directory import JobDirectory
from argosy.report import report
from tests.engine.launch.test_nodes import launchers

SCRIPT = """
import os
from argosy.engine.metrics.metrics_recorder import recorder
rank = int(os.environ["PADDLE_TRAINER_ID"])
for step in range(3):
    recorder().log(step, {"loss": float(rank)}, {"loss": "mean"})
print("rank", rank)
"""


Message = dict[str, Any]


def test_lines_and_profiles_are_sent_once_and_incomplete_lines_later(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    (metrics / "rank3.jsonl").write_text('{"a": 1}\n{"b"')
    (metrics / "rank3.profile.json").write_text("{}")
    (metrics / "other.txt").write_text("not a record")
    sent: list[Message] = []
    forwarder = RecordForwarder(str(tmp_path), sent.append)
    forwarder.forward()
    with (metrics / "rank3.jsonl").open("a") as file:
        file.write(": 2}\n")
    forwarder.finish()
    assert [(m["type"], m["name"], m.get("text")) for m in sent] == [
        ("records", "rank3.jsonl", '{"a": 1}\n'),
        ("profile", "rank3.profile.json", None),
        ("records", "rank3.jsonl", '{"b": 2}\n'),
    ]


def test_many_lines_are_sent_in_several_messages(tmp_path: Path) -> None:
    text = "x" * 99 + "\n"
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "rank0.jsonl").write_text(text * 5000)
    sent: list[Message] = []
    RecordForwarder(str(tmp_path), sent.append).finish()
    assert "".join(m["text"] for m in sent) == text * 5000
    assert max(len(m["text"]) for m in sent) <= MAX_CHARACTERS


def forwarded(node_1: Path, node_0: Path) -> RecordFiles:
    """What is in one directory is sent to the other."""
    files = RecordFiles(str(node_0))
    RecordForwarder(str(node_1), lambda message: files.add(1, message)).finish()
    return files


def test_a_large_profile_is_sent_compressed_in_parts(tmp_path: Path) -> None:
    (tmp_path / "a" / "metrics").mkdir(parents=True)
    content = random.Random(0).randbytes(600_000)
    (tmp_path / "a" / "metrics" / "rank1.profile.json").write_bytes(content)
    forwarded(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b" / "metrics" / "rank1.profile.json").read_bytes() == content


def test_of_a_long_log_the_last_lines_are_sent(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "workerlog.0").write_text("".join(f"line {i}\n" for i in range(50_000)))
    forwarded(tmp_path / "a", tmp_path / "b")
    first, *lines = (tmp_path / "b" / "node1.workerlog.0").read_text().splitlines()
    assert "bytes are left out here: see workerlog.0 on its host" in first
    assert lines[-1] == "line 49999"
    assert LOG_BYTES - 20 < sum(len(line) + 1 for line in lines) <= LOG_BYTES


def test_a_log_that_grows_is_bounded_on_node_0(tmp_path: Path) -> None:
    files = RecordFiles(str(tmp_path))
    line = "x" * 999 + "\n"
    for _ in range(5):
        files.add(2, {"type": "log", "name": "workerlog.0", "text": line * 300})
    text = (tmp_path / "node2.workerlog.0").read_text()
    assert text.startswith("[earlier lines are in the log on its host]\n" + line)
    assert KEPT_LOG_BYTES / 2 < len(text) <= KEPT_LOG_BYTES


@pytest.mark.parametrize("name", ["../job.json", "rank0.jsonl/../x", "events.jsonl", "rank.jsonl", ""])
@pytest.mark.parametrize("kind", ["records", "profile", "log"])
def test_no_other_file_can_be_written(tmp_path: Path, kind: str, name: str) -> None:
    with pytest.raises(ValueError, match="is not a file of records"):
        RecordFiles(str(tmp_path)).add(1, {"type": kind, "name": name, "text": "x"})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "message",
    [
        {"part": 1, "parts": 2, "data": ""},
        {"part": 0, "parts": 10_000, "data": ""},
        {"part": 0, "parts": 1, "data": "no base64"},
        {"part": 0, "parts": 1, "data": "AAAA"},
        {},
    ],
)
def test_a_malformed_profile_is_rejected(tmp_path: Path, message: Message) -> None:
    with pytest.raises(ValueError):
        RecordFiles(str(tmp_path)).add(1, {"type": "profile", "name": "rank1.profile.json"} | message)


def test_a_directory_that_cannot_be_written_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "metrics").write_text("a file")
    files = RecordFiles(str(tmp_path))
    files.add(1, {"type": "records", "name": "rank1.jsonl", "text": "x\n"})
    files.add(1, {"type": "records", "name": "rank1.jsonl", "text": "x\n"})
    assert caplog.text.count("views show only the ranks of node 0") == 1


def test_node_0_has_records_states_and_logs_of_all_ranks(tmp_path: Path) -> None:
    with launchers(tmp_path) as start:
        (tmp_path / "records.py").write_text(SCRIPT)
        nodes = [start(rank, "--nproc_per_node=2", "records.py") for rank in (0, 1)]
        assert [node.end()[0] for node in nodes] == [0, 0]
    directory = JobDirectory.find(tmp_path / "log")
    records = directory.poll()
    assert sorted(r.process for r in records if r.kind == "end") == ["rank0", "rank1", "rank2", "rank3"]
    assert sum(r.kind == "values" for r in records) == 12
    processes = directory.job()["processes"]
    assert [(p["rank"], p["state"], p["exit"]) for p in processes] == [(r, "done", 0) for r in range(4)]
    assert [p["log"] for p in processes][1:3] == ["workerlog.1", "node1.workerlog.0"]
    assert (directory.path / "node1.workerlog.1").read_text() == "rank 3\n"
    assert sorted(r["rank"] for r in records if r.kind == "exit") == [0, 1, 2, 3]


def test_a_failure_of_another_node_is_known_to_node_0(tmp_path: Path) -> None:
    with launchers(tmp_path) as start:
        nodes = [start(rank, "--nproc_per_node=1", "script.py", "raise", "1") for rank in (0, 1)]
        assert [node.end()[0] for node in nodes] == [1, 1]
    directory = JobDirectory.find(tmp_path / "log")
    job = directory.job()
    assert [p["state"] for p in job["processes"]] == ["terminated", "failed"]
    failure = job["failure"]
    assert (failure["process"], failure["what"]) == ("rank 1", "ValueError: planted")
    assert failure["log"] == "node1.workerlog.0"
    assert "ValueError: planted" in (directory.path / failure["log"]).read_text()
    found = report(directory.path)["failure"]
    assert (found["process"], found["what"]) == ("rank 1", "ValueError: planted")
    assert "raise ValueError" in found["traceback"]
    assert any("planted" in line for line in found["lines"])

"""Records of all nodes in the directory of node 0: what is sent, what is rejected, and a real job of two launchers."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from argosy.engine.launch.record_forwarding import MAX_CHARACTERS, RecordFiles, RecordForwarder
from argosy.engine.metrics.job_directory import JobDirectory
from tests.engine.launch.test_nodes import launchers

SCRIPT = """
import os
from argosy.engine.metrics.metrics_recorder import recorder
rank = int(os.environ["PADDLE_TRAINER_ID"])
for step in range(3):
    recorder().log(step, {"loss": float(rank)}, {"loss": "mean"})
"""


def test_lines_and_profiles_are_sent_once_and_incomplete_lines_later(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    (metrics / "rank3.jsonl").write_text('{"a": 1}\n{"b"')
    (metrics / "rank3.profile.json").write_text("{}")
    (metrics / "other.txt").write_text("not a record")
    sent: list[tuple[str, str]] = []
    forwarder = RecordForwarder(str(tmp_path), lambda name, text: sent.append((name, text)))
    forwarder._forward()
    with (metrics / "rank3.jsonl").open("a") as file:
        file.write(": 2}\n")
    forwarder.finish()
    assert sent == [
        ("rank3.jsonl", '{"a": 1}\n'),
        ("rank3.profile.json", "{}"),
        ("rank3.jsonl", '{"b": 2}\n'),
    ]


def test_many_lines_are_sent_in_several_messages(tmp_path: Path) -> None:
    text = "x" * 99 + "\n"
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "rank0.jsonl").write_text(text * 5000)
    sent: list[str] = []
    RecordForwarder(str(tmp_path), lambda _, part: sent.append(part)).finish()
    assert "".join(sent) == text * 5000
    assert max(map(len, sent)) <= MAX_CHARACTERS


@pytest.mark.parametrize("name", ["../job.json", "rank0.jsonl/../x", "events.jsonl", "rank.jsonl", ""])
def test_no_other_file_can_be_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not a file of records"):
        RecordFiles(str(tmp_path)).add(name, "x")
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_written_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "metrics").write_text("a file")
    files = RecordFiles(str(tmp_path))
    files.add("rank1.jsonl", "x\n")
    files.add("rank1.jsonl", "x\n")
    assert caplog.text.count("views show only the ranks of node 0") == 1


def test_the_directory_of_node_0_has_the_records_of_all_ranks(tmp_path: Path) -> None:
    with launchers(tmp_path) as start:
        (tmp_path / "records.py").write_text(SCRIPT)
        nodes = [start(rank, "--nproc_per_node=2", "records.py") for rank in (0, 1)]
        assert [node.end()[0] for node in nodes] == [0, 0]
    records = JobDirectory.find(tmp_path / "log").poll()
    assert sorted(r.process for r in records if r.kind == "end") == ["rank0", "rank1", "rank2", "rank3"]
    assert sum(r.kind == "values" for r in records) == 12

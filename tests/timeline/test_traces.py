"""Reading the files of a directory: whole and of one job, or an error that says what to do."""

# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path
from typing import Any

import pytest

from argosy.engine.errors import ConfigError
from argosy.timeline import read
from tests.timeline.traces_by_hand import event, trace, write

STEP = event("step 3", "step", 0, 10)


def test_all_ranks_are_read_in_order_and_other_files_left_alone(tmp_path: Path) -> None:
    write(tmp_path, *(trace(rank, [STEP], size=11) for rank in (10, *range(10))))
    (tmp_path / "merged.json").write_text("{}")
    assert [t.rank for t in read(tmp_path)] == list(range(11))


def test_no_directory_and_no_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no directory .*nowhere; give the DIR of fleetrun"):
        read(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="has no rank0.json, .*no timeline was written there; record again"):
        read(tmp_path)


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    write(tmp_path, trace(0, [STEP], size=3))
    with pytest.raises(ConfigError, match="of 1 of 3 ranks, without rank1.json, rank2.json; copy them here"):
        read(tmp_path)


def test_files_of_two_jobs_are_refused(tmp_path: Path) -> None:
    write(tmp_path, trace(0, [STEP], size=2), trace(1, [STEP], size=4))
    with pytest.raises(
        ConfigError, match="rank0.json is from a job of 2 ranks, rank1.json from one of 4; delete"
    ):
        read(tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it is not JSON"),
        ("[]", "its otherData has no format 'argosy.timeline'"),
        ('{"traceEvents": []}', "its otherData has no format"),
        (json.dumps(trace(1, [STEP])), "it is from rank 1 of 2"),
        (json.dumps(trace(0, [])), "it has no step"),
        (json.dumps(trace(0, [STEP | {"ts": "0"}])), "it is incomplete or malformed"),
        (json.dumps(trace(0, [STEP | {"cat": "collective"}])), "it is incomplete or malformed"),
    ],
)
def test_a_file_that_is_no_trace_is_named_with_the_reason(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "rank0.json").write_text(text)
    with pytest.raises(
        ConfigError, match=f"rank0.json is not a timeline of this rank: {why}.*; delete it and"
    ):
        read(tmp_path)


def test_another_version_is_refused(tmp_path: Path) -> None:
    newer: dict[str, Any] = trace(0, [STEP], size=1)
    newer["otherData"]["version"] = 2
    with pytest.raises(ConfigError, match="it has version 2, but this Argosy reads 1"):
        read(write(tmp_path, newer))

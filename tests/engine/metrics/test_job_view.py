"""The reader's side of the job directory: tails of growing files, bounded series, rates."""

# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path
from typing import Any

import pytest

from argosy.engine.errors import ConfigError
from argosy.engine.metrics.job_directory import JobDirectory, Record
from argosy.engine.metrics.job_view import MAX_POINTS, JobView, Series


def steps(rank: int, step: int, time: float, period_ms: float = 100.0, busy_ms: float = 80.0) -> Record:
    fields = {"kind": "steps", "time": time, "step": step, "steps": 10, "group": 1, "examples": 160}
    lists = {
        "period_ms": [period_ms] * 10,
        "busy_ms": [busy_ms] * 10,
        "exposed_ms": [period_ms - busy_ms] * 10,
    }
    return Record(f"rank{rank}", "steps", time, fields | lists | {"wall_s": 1.0})


def write(path: Path, *records: dict[str, Any], end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write("\n".join(map(json.dumps, records)) + end)


def test_a_growing_file_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics" / "rank0.jsonl"
    write(path, {"kind": "start", "time": 1.0, "rank": 0}, {"kind": "steps", "time": 2.0}, end="")
    directory = JobDirectory.find(tmp_path)
    assert [r.kind for r in directory.poll()] == ["start"]
    write(path, end="\n")
    assert [r.kind for r in directory.poll()] == ["steps"]
    assert directory.poll() == []


def test_a_malformed_line_is_counted_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "metrics" / "rank0.jsonl"
    write(path, {"kind": "start", "time": 1.0})
    with path.open("a") as file:
        file.write('{"kind": "ste\n[1]\n{"kind": "x"}\n')
    write(path, {"kind": "end", "time": 3.0})
    directory = JobDirectory.find(tmp_path)
    assert [r.kind for r in directory.poll()] == ["start", "end"]
    assert directory.num_malformed == 3


def test_the_directory_of_node_0_is_found(tmp_path: Path) -> None:
    (tmp_path / "node-0").mkdir()
    (tmp_path / "node-0" / "job.json").write_text('{"state": "running"}')
    assert JobDirectory.find(tmp_path).job() == {"state": "running"}


def test_a_directory_without_a_job_raises(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give the log directory"):
        JobDirectory.find(tmp_path)
    with pytest.raises(ConfigError, match="does not exist"):
        JobDirectory.find(tmp_path / "nowhere")


@pytest.mark.parametrize(("how", "expected"), [("mean", 2.0), ("min", 1.0), ("max", 3.0), ("last", 3.0)])
def test_values_are_reduced_over_the_ranks_also_when_one_lags_behind(how: str, expected: float) -> None:
    series = Series(how)
    for step in range(1, 6):
        series.add(0, step, 1.0)
    for step in range(1, 6):
        series.add(1, step, 3.0)
    assert series.steps == [1, 2, 3, 4, 5]
    assert series.values == [expected] * 5


def test_a_series_is_bounded_and_keeps_its_ends() -> None:
    series = Series()
    for step in range(1, 100_001):
        series.add(0, step, float(step))
    assert MAX_POINTS / 4 <= len(series.steps) <= MAX_POINTS
    assert (series.steps[0], series.steps[-1]) == (1, 100_000)
    assert series.values == [float(step) for step in series.steps]
    gaps = [b - a for a, b in zip(series.steps, series.steps[1:], strict=False)]
    assert max(gaps) <= 2 * min(gaps[:-1])


def test_a_resumed_job_overwrites_the_steps_that_it_repeats() -> None:
    series = Series()
    for step in (1, 2, 3, 4):
        series.add(0, step, 1.0)
    for step in (3, 4, 5):
        series.add(0, step, 2.0)
    assert (series.steps, series.values) == ([1, 2, 3, 4, 5], [1.0, 1.0, 2.0, 2.0, 2.0])


def test_rates_and_shares_of_a_job() -> None:
    view = JobView()
    view.update([steps(0, 10, 1.0, busy_ms=60.0), steps(1, 10, 1.1, busy_ms=90.0)])
    assert (view.step, view.step_ms) == (10, 100.0)
    assert view.total_per_s("examples") == 320.0
    assert view.exposed_fraction == pytest.approx(0.25)
    assert view.slowest is not None
    assert view.slowest.rank == 1


def test_the_remaining_time_counts_the_epochs_that_follow() -> None:
    view = JobView()
    view.update([steps(0, 10, 1.0)])
    progress = {"kind": "progress", "time": 1.0, "epoch": 2, "epochs": 3, "batch": 10, "batches": 100}
    assert view.remaining_s(1.0) is None
    view.update([Record("rank0", "progress", 1.0, progress)])
    assert view.remaining_s(1.0) == pytest.approx((90 + 100) * 0.1)
    assert view.remaining_s(2.0) == pytest.approx((90 + 100) * 0.1 - 1)

"""The heat map: few columns however long the job, means that are exact, changes only."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest

from argosy.dashboard.step_grid import MAX_COLUMNS, StepGrid


def record(step: int, periods: list[float], group: int = 1, steps: int | None = None) -> dict[str, Any]:
    zeros = [0.0] * len(periods)
    return {
        "step": step,
        "steps": steps or len(periods) * group,
        "group": group,
        "period_ms": periods,
        "busy_ms": periods,
        "outside_ms": zeros,
        "exposed_ms": zeros,
    }


def test_entries_are_the_means_of_their_steps() -> None:
    grid = StepGrid(width=4)
    grid.add_record(0, record(4, [1.0, 2.0], group=3, steps=4))  # steps 1 to 3, and step 4
    assert grid.snapshot()["columns"] == {"1": {"own": [1.25], "period": [1.25], "exposed": [0.0]}}


def test_a_long_job_has_few_columns_and_the_same_mean() -> None:
    grid = StepGrid()
    for step in range(1, 10_001):
        grid.add_record(0, record(step, [float(step)]))
    columns = grid.snapshot()["columns"]
    assert MAX_COLUMNS / 2 <= len(columns) <= MAX_COLUMNS
    assert columns["1"]["period"] == [(1 + grid.width) / 2]


def test_changes_have_the_columns_that_changed() -> None:
    grid = StepGrid()
    grid.add_record(0, record(3, [1.0, 1.0, 1.0]))
    assert (grid.changes() or {})["reset"]
    grid.add_record(0, record(5, [2.0, 2.0]))
    assert list((grid.changes() or {})["columns"]) == ["4", "5"]
    assert grid.changes() is None


def test_a_rank_without_a_step_has_no_value() -> None:
    grid = StepGrid()
    grid.add_record(1, record(1, [1.0]))
    grid.add_record(0, record(2, [1.0, 1.0]))
    assert grid.snapshot()["columns"]["2"]["period"] == [1.0, None]


def test_a_step_that_is_repeated_after_a_restart_replaces_the_old_one() -> None:
    grid = StepGrid()
    grid.add_record(0, record(4, [1.0, 1.0, 1.0, 1.0]))
    grid.add_record(0, record(3, [5.0]))
    assert {start: c["period"] for start, c in grid.snapshot()["columns"].items()} == {
        "1": [1.0],
        "2": [1.0],
        "3": [5.0],
    }


def test_a_malformed_record_raises() -> None:
    with pytest.raises(ValueError, match="more entries"):
        StepGrid().add_record(0, record(2, [1.0, 1.0, 1.0], steps=2))

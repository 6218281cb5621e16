"""The facts of a job as text."""

# SPDX-License-Identifier: Apache-2.0
import os
import socket
import time
from typing import Any

import pytest

from argosy.engine.metrics import summary
from argosy.engine.metrics.job_directory import Record
from argosy.engine.metrics.job_view import JobView

HOST = socket.gethostname()


def job(*states: str, role: str = "rank", **fields: Any) -> summary.Job:
    processes = [{"role": role, "rank": i, "state": state} for i, state in enumerate(states)]
    return {"state": "running", "started": 0.0, "processes": processes, **fields}


def texts(content: summary.Job, view: JobView | None = None, now: float = 42.0) -> list[str]:
    return ["; ".join(fact.text for fact in line) for line in summary.lines(content, view or JobView(), now)]


def test_processes_that_run_and_that_failed() -> None:
    assert texts(job("running", "running")) == ["2 ranks up; 42 s"]
    assert texts(job("running", "failed", "done")) == ["1 of 3 ranks up; 1 failed; 42 s"]
    assert texts(job("running", restart=2)) == ["1 rank up; restart 2; 42 s"]
    assert texts(job("done", "failed", state="failed", ended=90.0)) == ["2 ranks; 1 failed; 1:30 min"]
    assert texts({}) == []


def test_a_job_that_writes_nothing() -> None:
    view = JobView()
    view.update([Record("rank0", "start", 10.0, {})])
    assert texts(job("running"), view, now=15.0) == ["1 rank up; 15 s"]
    assert texts(job("running"), view, now=52.0) == ["1 rank up; 52 s; nothing recorded for 42 s"]


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        ({"epoch": 2, "epochs": 4, "batch": 5, "batches": 10}, "epoch 2 of 4; batch 5 of 10; "),
        ({"epoch": 2, "epochs": None, "batch": 5, "batches": None}, "epoch 2; batch 5"),
        ({"batch": 2000, "batches": 4000}, "batch 2,000 of 4,000; ━━━━━━━━━━━━──────────── 50%"),
    ],
)
def test_progress(progress: dict[str, Any], text: str) -> None:
    view = JobView()
    view.update([Record("rank0", "progress", 40.0, {"time": 40.0, **progress})])
    assert texts(job("running"), view)[1].startswith(text)


def test_a_straggler_is_shown_until_it_has_recovered() -> None:
    view = JobView()
    slow = {"kind": "straggler", "time": 40.0, "text": "rank 1 is slow"}
    view.update([Record("", "straggler", 40.0, slow)])
    assert texts(job("running"), view)[-1] == "rank 1 is slow"
    assert len(texts(job("running"), view, now=200.0)) == 1
    view.update([Record("", "straggler_recovered", 41.0, {"kind": "straggler_recovered", "time": 41.0})])
    assert len(texts(job("running"), view)) == 1


def test_load_of_other_processes_is_a_note() -> None:
    view = JobView()
    for rank, delay_s in ((0, 0.02), (1, 0.1)):
        steps = {
            "step": 4,
            "steps": 4,
            "group": 1,
            "period_ms": [250.0] * 4,
            "wall_s": 1.0,
            "delay_s": delay_s,
        }
        view.update([Record(f"rank{rank}", "steps", 40.0, steps)])
    assert texts(job("running", "running"), view)[-1] == "other processes delay the ranks by 6% (rank 1: 10%)"
    assert not any("delay" in line for line in texts(job("done", "done", state="completed"), view))
    ranks = summary.as_json(job("running"), view, "log")["ranks"]
    assert [rank["delayed_fraction"] for rank in ranks] == [0.02, 0.1]


def test_numbers() -> None:
    assert [summary.number(n) for n in (0.123456, 12345.6, 1e20, float("nan"), 0.0)] == [
        *("0.1235", "12,346", "1e+20", "nan", "0"),
    ]
    assert [summary.duration(s) for s in (0.4, 59, 61, 3661, 200_000)] == [
        *("0 s", "59 s", "1:01 min", "1:01:01 h", "2 d 7 h"),
    ]
    assert [summary.size(b) for b in (1, 12_345, 10**13)] == ["1 B", "12.3 kB", "10 TB"]


def test_a_launcher_that_is_gone() -> None:
    here = {"state": "running", "host": HOST, "started": time.time()}
    assert not summary.launcher_is_gone({**here, "launcher_pid": os.getpid()}, HOST)
    assert summary.launcher_is_gone(
        {**here, "launcher_pid": os.getpid(), "started": 1.0}, HOST
    )  # pid was reused
    assert summary.launcher_is_gone({**here, "launcher_pid": 2**22 + 1}, HOST)
    assert not summary.launcher_is_gone({**here, "launcher_pid": 2**22 + 1}, "elsewhere")
    assert not summary.launcher_is_gone({**here, "state": "completed", "launcher_pid": 1}, HOST)

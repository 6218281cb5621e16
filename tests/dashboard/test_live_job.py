"""The changes that pages get add up to the state of the job."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest

from argosy.dashboard import live_job
from argosy.dashboard.live_job import LiveJob
from tests.dashboard.generated_job import GeneratedJob

SECTIONS = ("ranks", "samples", "servers", "profiles")


class Shown:
    """What a page does with changes (dashboard.js: apply)."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def apply(self, change: dict[str, Any]) -> None:
        if change.get("reset"):
            self.state = {"series": {}, "heat": {}, "events": []}
        for name in SECTIONS:
            self.state.setdefault(name, {}).update(change.get(name, {}))
        for name, points in change.get("series", {}).items():
            before = {x: y for x, y in self.state["series"].get(name, {}).items() if x < points["from"]}
            self.state["series"][name] = before | dict(zip(points["x"], points["y"], strict=True))
        if heat := change.get("heat"):
            self.state["heat"] = ({} if heat.get("reset") else self.state["heat"]) | heat["columns"]
        events = change.get("events", {"first": 0, "list": []})
        for number, event in enumerate(events["list"], start=events["first"]):
            if number >= len(self.state["events"]):
                self.state["events"].append(event)


def test_changes_add_up_to_the_state(tmp_path: Path) -> None:
    page, late = Shown(), Shown()
    with GeneratedJob(tmp_path, servers=1, step_ms=2.0) as job:
        live = LiveJob(tmp_path)
        for number in range(40):
            page.apply(live.poll())
            job.advance(number % 5 * 10)
            job.event("restart", f"event {number}")
        page.apply(live.poll())
        late.apply(live.snapshot())
    assert page.state == late.state
    assert len(page.state["events"]) == 40
    assert max(page.state["series"]["loss"]) == job.step
    assert live.poll().keys() <= {"overview"}


def test_a_long_job_is_read_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_job, "SLICE_S", 0.0)
    page, at_once = Shown(), Shown()
    with GeneratedJob(tmp_path) as job:
        job.advance(20)
        live = LiveJob(tmp_path)
        page.apply(live.poll())
        assert live.is_reading
        while live.is_reading:
            page.apply(live.poll())
    monkeypatch.setattr(live_job, "SLICE_S", 60.0)
    at_once.apply(LiveJob(tmp_path).poll())
    assert page.state == at_once.state


def test_of_a_long_job_a_part_is_read_and_its_last_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with GeneratedJob(tmp_path) as job:
        job.advance(60)
        size = sum(file.stat().st_size for file in (tmp_path / "metrics").glob("*.jsonl"))
        monkeypatch.setattr(live_job, "MAX_JOINED_BYTES", size // 8)
        live = LiveJob(tmp_path)
        state = live.poll()
        assert state["job"]["thin"] in (8, 9)
        assert state["overview"]["step"] == job.step
        columns = len(state["heat"]["columns"])
        job.advance(10)
        change = live.poll()
        assert change["overview"]["step"] == job.step
        assert len(change["heat"]["columns"]) >= 3
        assert columns > 20

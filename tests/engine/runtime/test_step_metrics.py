"""Measurements of training steps: which runs count, that they add up, samples, watched fetches, requested timelines."""

# SPDX-License-Identifier: Apache-2.0
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import argosy as paddle
from argosy.engine.collective import trace
from argosy.engine.errors import ArgumentTypeError, ConfigError, FeedError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.metrics import metrics_recorder as recorder_module
from argosy.engine.metrics.job_directory import METRICS, REQUESTS, JobDirectory
from argosy.engine.metrics.metrics_recorder import JobProcess, MetricsRecorder
from argosy.engine.runtime import step_metrics
from argosy.engine.runtime.executor import Executor

FEED = {"x": np.ones((6, 8), "float32"), "y": np.zeros((6, 1), "int64")}


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MetricsRecorder]:
    """The recorder of this process, in tmp_path."""
    monkeypatch.setenv("ARGOSY_METRICS_DIR", str(tmp_path))
    created = MetricsRecorder(tmp_path / METRICS / "rank0.jsonl", JobProcess("rank", 0, 1, 0))
    monkeypatch.setattr(recorder_module, "_recorder", created)
    monkeypatch.setattr(step_metrics, "_meter", step_metrics.StepMeter())
    yield created
    paddle.metrics.unwatch()
    created.close()


def written(path: Path, kind: str) -> list[dict[str, Any]]:
    return [r.fields for r in JobDirectory(path).poll() if r.kind == kind]


def net() -> tuple[Executor, Any]:
    x, y = paddle.static.data("x", [None, 8]), paddle.static.data("y", [None, 1], "int64")
    hidden = paddle.static.nn.fc(x, 16, activation="relu")
    loss = paddle.nn.functional.cross_entropy(paddle.static.nn.fc(hidden, 3), y)
    paddle.optimizer.SGD(0.1).minimize(loss)
    exe = Executor()
    exe.run(default_startup_program())
    return exe, loss


def train(exe: Executor, loss: Any, steps: int) -> list[float]:
    return [float(exe.run(feed=FEED, fetch_list=[loss])[0]) for _ in range(steps)]


def test_only_training_steps_are_counted(records: MetricsRecorder, tmp_path: Path) -> None:
    exe, loss = net()
    test = default_main_program().clone(for_test=True)
    train(exe, loss, 3)
    exe.run(test, feed=FEED, fetch_list=[loss.name])
    records.close()
    steps = written(tmp_path, "steps")
    assert (records.step, sum(s["steps"] for s in steps), sum(s["examples"] for s in steps)) == (3, 3, 18)


def test_the_times_of_a_step_add_up_to_its_period(records: MetricsRecorder, tmp_path: Path) -> None:
    exe, loss = net()
    for _ in range(3):
        train(exe, loss, 1)
        time.sleep(0.02)
    records.close()
    first, rest = written(tmp_path, "steps")
    assert first["outside_ms"] == [0.0]
    for period, *parts in zip(
        rest["period_ms"], rest["busy_ms"], rest["exposed_ms"], rest["outside_ms"], strict=True
    ):
        assert period == pytest.approx(sum(parts), abs=0.01)
    assert min(rest["outside_ms"]) >= 20


def test_the_wait_for_a_loader_is_counted_as_input(records: MetricsRecorder, tmp_path: Path) -> None:
    exe, loss = net()
    is_read = threading.Semaphore(1)  # the reader is not ahead

    def slow_batches() -> Iterator[dict[str, Any]]:
        for _ in range(3):
            assert is_read.acquire(timeout=60)
            time.sleep(0.05)
            yield FEED

    loader = paddle.io.DataLoader.from_generator(
        [default_main_program().global_block().var(n) for n in ("x", "y")], capacity=1
    )
    loader.set_batch_generator(lambda: (tuple(batch.values()) for batch in slow_batches()))
    for feed in loader():
        exe.run(feed=feed, fetch_list=[loss])
        is_read.release()
    records.close()
    entries = [ms for s in written(tmp_path, "steps")[1:] for ms in s["input_ms"]]
    assert min(entries) > 25


def test_a_sampled_step_says_where_the_time_went(records: MetricsRecorder, tmp_path: Path) -> None:
    exe, loss = net()
    train(exe, loss, 6)
    (sample,) = written(tmp_path, "sample")
    assert sample["step"] == 5
    roles = ("forward", "backward", "optimize", "communicate", "exposed", "other")
    assert sum(sample[f"{role}_ms"] for role in roles) == pytest.approx(sample["step_ms"], rel=0.01)
    assert min(sample["forward_ms"], sample["backward_ms"], sample["optimize_ms"]) > 0
    profile = JobDirectory(tmp_path).profile(0)
    assert profile is not None
    assert {node["op"] for node in profile["nodes"]} >= {"addmm", "_log_softmax"}
    assert all(
        node["source"].startswith("test_step_metrics.py")
        for node in profile["nodes"]
        if node["role"] == "forward"
    )
    assert profile["memory"]["peak_bytes"] > 0
    assert trace.recording is None


def test_sampling_changes_no_value(records: MetricsRecorder) -> None:
    exe, loss = net()
    losses = train(exe, loss, 25)
    exe.run(default_startup_program())
    assert records.step == 25
    assert losses == sorted(losses, reverse=True)


def test_a_sampled_step_that_fails_leaves_no_tracing_on(records: MetricsRecorder) -> None:
    exe, loss = net()
    train(exe, loss, 4)
    with pytest.raises(FeedError):
        exe.run(feed={"x": FEED["x"], "y": FEED["y"].astype("float32")[:, 0]}, fetch_list=[loss])
    assert trace.recording is None


def test_waits_are_subtracted_from_the_nodes_that_they_are_in() -> None:
    spans = [(0, 0, 10), (1, 10, 30), (2, 40, 50)]
    assert step_metrics.without_waits(spans, [(12, 20), (22, 25), (45, 48)]) == ([10, 9, 7], 14)


def test_a_watched_fetch_is_logged_when_a_training_step_fetches_it(
    records: MetricsRecorder, tmp_path: Path
) -> None:
    exe, loss = net()
    test = default_main_program().clone(for_test=True)
    paddle.metrics.watch(loss=loss, reduce="max")
    losses = train(exe, loss, 2)
    exe.run(feed=FEED)
    exe.run(test, feed=FEED, fetch_list=[loss.name])
    assert [(v["step"], v["values"], v["reduce"]) for v in written(tmp_path, "values")] == [
        (step, {"loss": pytest.approx(value)}, {"loss": "max"}) for step, value in enumerate(losses, 1)
    ]


def test_a_requested_timeline_is_recorded_once(records: MetricsRecorder, tmp_path: Path) -> None:
    exe, loss = net()
    train(exe, loss, 1)
    wanted = {"id": "a", "directory": str(tmp_path / "timeline"), "first_step": 4, "steps": 2}
    (tmp_path / METRICS / REQUESTS).write_text(json.dumps({"timeline": wanted}))
    step_metrics._meter.requested_at = 0
    train(exe, loss, 8)
    trace_file = json.loads((tmp_path / "timeline" / "rank0.json").read_bytes())
    assert [e["name"] for e in trace_file["traceEvents"] if e.get("cat") == "step"] == ["step 2", "step 3"]
    step_metrics._meter.requested_at = 0
    train(exe, loss, 3)
    assert not any(tmp_path.glob("timeline/*.tmp"))


def test_a_malformed_request_is_a_warning(
    records: MetricsRecorder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    exe, loss = net()
    train(exe, loss, 1)
    (tmp_path / METRICS / REQUESTS).write_text('{"timeline": {"id": 7}}')
    step_metrics._meter.requested_at = 0
    train(exe, loss, 1)
    assert "is not recorded" in caplog.text


def test_logged_values_are_numbers_or_means_of_arrays(records: MetricsRecorder, tmp_path: Path) -> None:
    paddle.metrics.log(step=3, reduce={"loss": "min"}, loss=np.array([1.0, 3.0]), lr=0.5)
    (record,) = written(tmp_path, "values")
    assert (record["step"], record["values"]) == (3, {"loss": 2.0, "lr": 0.5})
    assert record["reduce"] == {"loss": "min", "lr": "mean"}


def test_what_cannot_be_logged_raises(records: MetricsRecorder) -> None:
    with pytest.raises(ArgumentTypeError, match="fetch a Variable first"):
        paddle.metrics.log(loss="low")
    with pytest.raises(ConfigError, match="use one of mean, min, max, last"):
        paddle.metrics.log(loss=1.0, reduce="sum")
    with pytest.raises(ConfigError, match="not among the values"):
        paddle.metrics.log(loss=1.0, reduce={"los": "min"})
    with pytest.raises(ConfigError, match="0 or more"):
        paddle.metrics.log(step=-1, loss=1.0)
    with pytest.raises(ArgumentTypeError, match="give a Variable"):
        paddle.metrics.watch(3)
    with pytest.raises(ArgumentTypeError, match="give a function"):
        paddle.metrics.add_callback("print")


def test_a_callback_gets_the_records_until_it_is_removed(records: MetricsRecorder) -> None:
    got: list[dict[str, Any]] = []
    remove = paddle.metrics.add_callback(got.append)
    paddle.metrics.log(loss=1.0)
    remove()
    paddle.metrics.log(loss=2.0)
    assert [record["values"] for record in got] == [{"loss": 1.0}]

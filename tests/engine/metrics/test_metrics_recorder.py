"""The records of a process: how steps are grouped, what is left out, what a full disk does."""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from argosy.engine.metrics import metrics_recorder as module
from argosy.engine.metrics.metrics_recorder import (
    MAX_ENTRIES,
    WATCHED_STEPS,
    JobProcess,
    MetricsRecorder,
    StepTimes,
)

STEP = StepTimes(
    period=4_000_000,
    busy=2_000_000,
    exposed=1_000_000,
    outside=1_000_000,
    input=0,
    examples=8,
    sent_bytes=100,
)


def opened(path: Path) -> MetricsRecorder:
    return MetricsRecorder(path / "metrics" / "rank0.jsonl", JobProcess("rank", 0, 2, 0))


def written(path: Path, kind: str) -> list[dict[str, Any]]:
    lines = (path / "metrics" / "rank0.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def test_the_first_record_says_which_process_writes(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (start,) = written(tmp_path, "start")
    assert (start["rank"], start["size"], start["role"], start["pid"]) == (0, 2, "rank", os.getpid())
    assert start["versions"]["torch"].startswith("2.13")


def test_the_first_step_is_written_at_once_and_the_others_at_most_twice_per_second(tmp_path: Path) -> None:
    records = opened(tmp_path)
    for _ in range(100):
        records.add_step(STEP)
    assert [record["step"] for record in written(tmp_path, "steps")] == [1]
    records.close()
    first, last = written(tmp_path, "steps")
    assert (last["step"], last["steps"], last["group"]) == (100, 99, 5)
    assert len(last["busy_ms"]) == MAX_ENTRIES
    assert (last["period_ms"][0], last["busy_ms"][0], last["exposed_ms"][-1]) == (4.0, 2.0, 1.0)
    assert (last["examples"], last["sent_bytes"]) == (99 * 8, 99 * 100)
    assert first["rss"] > 0


def test_the_last_record_has_the_outcome_and_closing_twice_writes_it_once(tmp_path: Path) -> None:
    records = opened(tmp_path)
    records.close("ValueError: x")
    records.close()
    assert [record["outcome"] for record in written(tmp_path, "end")] == ["ValueError: x"]


def test_watched_values_become_rarer_by_the_number_of_the_step(tmp_path: Path) -> None:
    records = opened(tmp_path)
    for step in range(1, 2 * WATCHED_STEPS + 2):
        records.step = step
        records.log_watched({"loss": float(step)}, {"loss": "mean"})
    records.close()
    steps = [record["step"] for record in written(tmp_path, "values")]
    assert steps[:WATCHED_STEPS] == [*range(1, WATCHED_STEPS), WATCHED_STEPS]
    assert steps[WATCHED_STEPS : WATCHED_STEPS + 2] == [WATCHED_STEPS + 2, WATCHED_STEPS + 4]
    assert steps[-1] == 2 * WATCHED_STEPS + 1  # the very last one


def test_values_that_json_does_not_have_are_written_as_text(tmp_path: Path) -> None:
    records = opened(tmp_path)
    records.log(3, {"loss": float("nan"), "scale": float("-inf"), "lr": 0.5}, {})
    (record,) = written(tmp_path, "values")
    assert record["values"] == {"loss": "nan", "scale": "-inf", "lr": 0.5}


def test_progress_is_written_at_most_twice_per_second_and_at_the_end(tmp_path: Path) -> None:
    records = opened(tmp_path)
    for batch in range(50):
        records.progress(batch + 1, 50)
    records.close()
    assert [record["batch"] for record in written(tmp_path, "progress")] == [1, 50]


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    records = opened(tmp_path)
    if (child := os.fork()) == 0:
        records.write("values", step=1)
        records.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert not written(tmp_path, "values")
    assert not written(tmp_path, "end")
    records.close()


def test_without_a_directory_only_callbacks_get_records() -> None:
    records = MetricsRecorder(None, JobProcess("rank", 0, 1, 0))
    assert not records.is_on
    got: list[dict[str, Any]] = []
    records.callbacks.append(got.append)
    records.log(1, {"loss": 2.0}, {"loss": "mean"})
    assert (got[0]["kind"], got[0]["values"]) == ("values", {"loss": 2.0})


def test_a_directory_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "metrics").write_text("a file")
    assert not opened(tmp_path).is_on
    assert "will not show this process" in caplog.text


def test_a_full_disk_ends_the_recording_and_not_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = opened(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
        records.write("values", step=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert "show no more of this process" in caplog.text
    assert not records.is_on
    records.close()


def test_the_process_of_fleetrun_writes_its_end_at_exit(tmp_path: Path) -> None:
    code = (
        "import sys; from argosy.engine.metrics.metrics_recorder import recorder\n"
        "recorder().log(1, {'loss': 1.0}, {}); sys.last_value = ValueError('bad'); raise sys.last_value"
    )
    environ = os.environ | {
        "ARGOSY_METRICS_DIR": str(tmp_path),
        "PADDLE_TRAINER_ID": "1",
        "PADDLE_TRAINERS_NUM": "2",
    }
    subprocess.run([sys.executable, "-c", code], env=environ, check=False, capture_output=True)
    kinds = [json.loads(line) for line in (tmp_path / "metrics" / "rank1.jsonl").read_text().splitlines()]
    assert [record["kind"] for record in kinds] == ["start", "values", "end"]
    assert kinds[-1]["outcome"] == "ValueError: bad"


def test_the_recorder_needs_no_torch() -> None:
    imports = "import sys, argosy.engine.metrics.metrics_recorder, argosy.engine.metrics.job_view"
    code = f"{imports}; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.strip() == "False"
    assert module.recorder() is module.recorder()


def test_a_parameter_server_does_not_write_to_the_records_of_a_rank(tmp_path: Path) -> None:
    code = (
        "from argosy.engine.metrics import metrics_recorder\n"
        "metrics_recorder.recorder().write('strategy', text=''); metrics_recorder.start_server(1, 2).write('tables')"
    )
    environ = os.environ | {"ARGOSY_METRICS_DIR": str(tmp_path), "TRAINING_ROLE": "PSERVER"}
    subprocess.run([sys.executable, "-c", code], env=environ, check=True)
    assert [path.name for path in (tmp_path / "metrics").iterdir()] == ["server1.jsonl"]

"""Reports of real jobs of two ranks: a completed one, one that fails, and two strategies side by side."""

# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path

import pytest

from argosy.report import report, write, write_comparison
from tests.engine.launch.conftest import Fleetrun, fleetrun
from tests.ranks import ForkServer
from tests.report.pages import ParsedPage
from tests.warm_fleetrun import WarmFleetrun

__all__ = ["fleetrun"]
pytestmark = pytest.mark.slow

SCRIPT = """
import numpy as np
import argosy as paddle
from argosy.distributed import fleet

fleet.init(is_collective=True)
x, y = paddle.static.data("x", [None, 8], "float32"), paddle.static.data("y", [None, 1], "float32")
hidden = paddle.static.nn.fc(x, 32, activation="relu")
loss = paddle.mean(paddle.nn.functional.square_error_cost(paddle.static.nn.fc(hidden, 1), y))
strategy = fleet.DistributedStrategy()
strategy.fp16_allreduce = "fp16" in sys.argv
fleet.distributed_optimizer(paddle.optimizer.SGD(0.01), strategy).minimize(loss)
exe = paddle.static.Executor()
exe.run(paddle.static.default_startup_program())
rng = np.random.RandomState(0)
for step in range(1, 31):
    batch = rng.randn(16, 8).astype("float32")
    (value,) = exe.run(feed={"x": batch, "y": batch[:, :1]}, fetch_list=[loss])
    paddle.metrics.log(step=step, loss=float(value.mean()))
    if step == 20 and "fail" in sys.argv and rank == "1":
        print("</script><script>alert(1)</script>", flush=True)
        raise FloatingPointError("loss is nan")
"""


def run(fleetrun: Fleetrun, ranks: ForkServer, name: str, *words: str) -> Path:
    """Run the job; gives its log directory."""
    script = fleetrun.script(SCRIPT)
    job = WarmFleetrun(ranks, "--nproc_per_node=2", "--log_dir", name, script, *words, cwd=fleetrun.directory)
    said = job.communicate(timeout=200)
    assert job.returncode == int("fail" in words), said
    return fleetrun.directory / name


def test_the_report_of_a_job_has_its_losses_and_times(fleetrun: Fleetrun, ranks: ForkServer) -> None:
    path = run(fleetrun, ranks, "log")
    page = ParsedPage(write(path).read_text())
    data = page.data["report"]
    assert (data["state"], data["figures"]["step"], data["figures"]["ranks"]) == ("completed", 30, 2)
    lines = (path / "metrics" / "rank0.jsonl").read_text().splitlines()
    first = next(r for r in map(json.loads, lines) if r["kind"] == "values")
    (loss,) = (curve for curve in data["curves"] if curve["name"] == "loss")
    assert loss["steps"] == list(range(1, 31))
    assert loss["first"] == pytest.approx(
        first["values"]["loss"], rel=0.2
    )  # the mean of two ranks with equal input
    assert [row["rank"] for row in data["breakdown"]["inside"]] == [0, 1]
    assert all(row["state"] == "done" for row in data["processes"])
    assert any("train.py:" in source for source, _ in data["nodes"]["by_source"])
    assert data["communication"]["collectives"]
    assert data["memory"]["ranks"][0]["peak_bytes"] > 0
    page.assert_inert()


def test_the_report_of_a_failed_job_begins_with_the_cause(fleetrun: Fleetrun, ranks: ForkServer) -> None:
    path = run(fleetrun, ranks, "log", "fail")
    found = report(path)["failure"]
    assert (found["process"], found["what"]) == ("rank 1", "FloatingPointError: loss is nan")
    assert (found["advice"]["kind"], found["after"]) == ("NaN or infinity", "20 steps")
    assert "train.py:" in found["where"]
    assert found["waiting"]
    page = ParsedPage(write(path).read_text())
    page.assert_inert()
    assert page.text.index("Rank 1 failed: NaN or infinity") < page.text.index("What ran where", 500)
    assert "</script><script>alert(1)</script>" in page.text


def test_two_strategies_are_compared(fleetrun: Fleetrun, ranks: ForkServer) -> None:
    a, b = run(fleetrun, ranks, "a"), run(fleetrun, ranks, "b", "fp16")
    page = ParsedPage(write_comparison(a, b).read_text())
    comparison = page.data["comparison"]
    assert ["strategy.fp16_allreduce", "default", "True"] in comparison["settings"]
    assert "strategy.fp16_allreduce: default → True" in comparison["sentence"]
    assert {row["name"] for row in comparison["phases"]["inside"] if row["difference"] is not None} >= {
        "forward"
    }
    (loss,) = (curve for curve in comparison["curves"] if curve["name"] == "loss")
    assert len(loss["a"]["values"]) == len(loss["b"]["values"]) == 30

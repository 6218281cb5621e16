"""Reports of real jobs: of two ranks, completed and failed; two strategies compared; two nodes; parameter servers."""

# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path
from typing import Any

import pytest

from argosy.report import report, write, write_comparison
from tests.engine.launch.conftest import Fleetrun, fleetrun
from tests.engine.launch.test_nodes import launchers
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
    failure = report(path)["failure"]
    assert (failure["process"], failure["what"]) == ("rank 1", "FloatingPointError: loss is nan")
    assert (failure["advice"]["kind"], failure["after"]) == ("NaN or infinity", "20 steps")
    assert "train.py:" in failure["where"]
    assert failure["waiting"]
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


TRAINERS = Path(__file__).parents[1] / "browser"


def on_two_nodes(tmp_path: Path, *words: str) -> tuple[dict[str, Any], ParsedPage]:
    """The report that node 0 writes at the end of a job of two launchers."""
    with launchers(tmp_path) as start:
        nodes = [start(rank, *words) for rank in (0, 1)]
        for node in nodes:
            code, said = node.end()
            assert code == 0, said
    page = ParsedPage((tmp_path / "log" / "node-0" / "report.html").read_text())
    page.assert_inert()
    return page.data["report"], page


def test_the_report_of_two_nodes_has_the_ranks_of_both(tmp_path: Path) -> None:
    data, page = on_two_nodes(tmp_path, "--nproc_per_node=1", str(TRAINERS / "train_collective.py"), "40")
    assert (data["state"], data["figures"]["step"], data["figures"]["ranks"]) == ("completed", 40, 2)
    assert [(p["rank"], p["state"], p["exit"], p["step"]) for p in data["processes"]] == [
        (0, "done", 0, 40),
        (1, "done", 0, 40),
    ]
    assert [row["rank"] for row in data["breakdown"]["inside"]] == [0, 1]
    assert [(o["name"], o["log"]) for o in data["outputs"]] == [
        ("rank 0", "workerlog.0"),
        ("rank 1", "node1.workerlog.0"),
    ]
    assert all("step 40: loss" in o["lines"][-1] for o in data["outputs"])
    # On one host the updates are divided: the gradients are summed by the updates.
    (summed,) = (c for c in data["communication"]["collectives"] if c["name"].startswith("sum in updates"))
    assert summed["bytes"] > 100_000
    assert summed["bytes_per_s"] > 0
    assert page.text.count("node1.workerlog.0") >= 1


def test_the_report_of_parameter_servers_on_two_nodes(tmp_path: Path) -> None:
    words = ("--server_num=2", "--worker_num=2", str(TRAINERS / "train_servers.py"), "40")
    data, _ = on_two_nodes(tmp_path, *words)
    assert (data["figures"]["step"], data["figures"]["ranks"], data["figures"]["servers"]) == (40, 2, 2)
    assert [(p["role"], p["rank"], p["state"]) for p in data["processes"]] == [
        (role, rank, "done") for role in ("worker", "server") for rank in (0, 1)
    ]
    assert len({p["host"] for p in data["processes"]}) == 1
    (table,) = data["servers"]["tables"]
    assert (table["name"], table["pulled"] > 0, table["pushed"] > 0) == ("clicks", True, True)
    requests = [server["requests"] for server in data["servers"]["servers"]]
    assert [r["push_rows"]["count"] for r in requests] == [80, 80]
    assert all(row["blocked"] > 0 for row in data["breakdown"]["periods"])
    assert all(row["exposed"] > 0 for row in data["breakdown"]["inside"])
    assert {o["log"] for o in data["outputs"]} == {
        *("serverlog.0", "node1.serverlog.0", "workerlog.0", "node1.workerlog.0")
    }

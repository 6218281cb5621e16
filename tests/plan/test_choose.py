"""python -m argosy.plan SCRIPT: a script is measured in processes of its own, and its settings are printed."""

# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys
from pathlib import Path

import pytest

from argosy.distributed.auto.setting import Setting
from argosy.distributed.fleet import DistributedStrategy
from argosy.engine.planner.topology import HostKind, Link, Topology
from argosy.plan.__main__ import main
from argosy.plan.script import processes_of
from tests.distributed.auto.training import cluster

SCRIPT = """
import sys
import numpy as np
import argosy as paddle
from argosy.distributed import fleet

paddle.enable_static()
width = int(sys.argv[1])
x = paddle.static.data("x", [None, width], "float32")
loss = paddle.static.nn.fc(paddle.static.nn.fc(x, width, activation="relu"), 1).mean()
fleet.init(is_collective=True)
fleet.distributed_optimizer(paddle.optimizer.SGD(0.1)).minimize(loss)
exe = paddle.static.Executor()
exe.run(paddle.static.default_startup_program())
print("printed by the script")
for step in range(1000):
    exe.run(feed={"x": np.ones((8, width), "float32")}, fetch_list=[loss])
raise SystemExit("the script was not ended after its step was measured")
"""


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "argosy.plan", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "train.py").write_text(SCRIPT)
    cluster(2, 1, gbit_per_s=0.1).write(tmp_path / "cluster.toml")
    return str(tmp_path / "train.py"), str(tmp_path / "cluster.toml")


@pytest.mark.slow
def test_the_settings_of_a_script(files: tuple[str, str]) -> None:
    script, hosts = files
    ended = run(
        script, "--hosts", hosts, "--seconds", "0.2", "--batch", "4", "16", "--json", "--top", "3", "64"
    )
    assert ended.returncode == 0, ended.stderr
    assert "printed by the script" in ended.stderr
    printed = json.loads(ended.stdout)
    assert len(printed) == 3
    assert printed[0]["examples_per_s"] >= 0.995 * max(one["examples_per_s"] for one in printed)
    strategy = DistributedStrategy()
    exec("\n".join(printed[0]["lines"]), {"strategy": strategy})
    assert Setting.of(strategy) == Setting(**printed[0]["setting"])


@pytest.mark.slow
def test_one_switch_is_explained(files: tuple[str, str]) -> None:
    script, hosts = files
    ended = run(script, "--hosts", hosts, "--seconds", "0.2", "--explain", "sync_nccl_allreduce", "--", "64")
    assert ended.returncode == 0, ended.stderr
    assert "sync_nccl_allreduce, all else as in the script" in ended.stdout
    assert "the script's" in ended.stdout
    assert "the bandwidth of the link 'ethernet'" in ended.stdout


@pytest.mark.slow
def test_a_script_that_trains_nothing_is_an_error(tmp_path: Path, files: tuple[str, str]) -> None:
    (tmp_path / "idle.py").write_text("import argosy\n")
    ended = run(str(tmp_path / "idle.py"), "--hosts", files[1])
    assert ended.returncode == 1
    assert "ended without a training step of fleet" in ended.stderr


def test_invalid_arguments_exit_with_2(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    script, hosts = files
    assert main(["missing.py", "--hosts", hosts]) == 2
    assert main([script, "--hosts", hosts, "--top", "0"]) == 2
    assert main([script, "--hosts", hosts, "--batch", "0"]) == 2
    errors = capsys.readouterr().err
    assert "missing.py is not a file; give the training script" in errors
    assert "--top 0; use 1 or more" in errors
    assert "--batch 0; use 1 or more" in errors


def test_as_many_processes_as_a_host_has_ranks_and_this_machine_cores() -> None:
    def host(ranks: int, threads: int, count: int = 2) -> Topology:
        return Topology((HostKind("e", count, ranks=ranks, threads=threads),), {"e": Link(1.0)})

    assert processes_of(host(4, 1), 2) == (1, 2)
    assert processes_of(host(2, 1), 8) == (1, 2)
    assert processes_of(host(2, 4), 2) == (2, 1)
    assert processes_of(host(2, 4), 16) == (4, 2)

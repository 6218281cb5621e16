"""examples/pserver under fleetrun: an MLP and a ResNet, transpiled."""

# SPDX-License-Identifier: Apache-2.0
import importlib
import json
import os
import re
import runpy
import sys
from pathlib import Path

import pytest

from tests.fleet_jobs import take_role
from tests.ranks import ForkServer
from tests.warm_fleetrun import WarmFleetrun

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parent.parent.parent / "examples" / "pserver" / "train.py"
STEPS = 60
TRAINED = (f"--max_steps={STEPS}", "--lr=0.005")
LEAST = 10
"""Layers of a ResNet with one block of every shape, which `on_a_rank` knows."""


def losses(ranks: ForkServer, log_dir: Path, *words: str, workers: int = 2) -> list[list[float]]:
    """Run the example with a server; the losses that each worker prints."""
    environ = {"ARGOSY_CACHE": os.environ["ARGOSY_CACHE"], "ARGOSY_HEARTBEAT_S": "0.2"}
    launcher = ["--server_num=1", f"--worker_num={workers}", f"--log_dir={log_dir}"]
    words = (*launcher, str(SCRIPT), "--print_every=1", *words)
    job = WarmFleetrun(ranks, *words, cwd=log_dir, environ=environ)
    said = job.communicate(240.0)
    logs = {path.name: path.read_text() for path in log_dir.iterdir() if path.is_file()}
    assert job.returncode == 0, (said, logs)
    assert "server 0 ends after" in logs["serverlog.0"]
    matches = [re.findall(r"loss: (\S+),", logs[f"workerlog.{worker}"]) for worker in range(workers)]
    return [[float(loss) for loss in one] for one in matches]


def on_a_rank() -> None:
    """Be a worker or a server of the example: what fleetrun would start, without seconds of imports."""
    words = json.loads(os.environ["ARGUMENTS"])
    take_role(int(os.environ["WORKERS"]))
    sys.path.insert(0, str(SCRIPT.parent.parent / "resnet"))
    importlib.import_module("resnet").BLOCKS[LEAST] = [1, 1, 1, 1]
    sys.argv = [str(SCRIPT), "--print_every=1", *words]
    runpy.run_path(str(SCRIPT), run_name="__main__")


def losses_on(ranks: ForkServer, *words: str, workers: int) -> tuple[list[list[float]], str]:
    """The same on the fork server's ranks; and what the server printed."""
    given = {"ARGUMENTS": json.dumps(words), "WORKERS": str(workers), "ARGOSY_HEARTBEAT_S": "0.2"}
    cache = os.environ["ARGOSY_CACHE"]
    *said, served = ranks.check(workers + 1, on_a_rank, 200.0, ARGOSY_CACHE=cache, **given)
    assert "server 0 ends after" in served
    return [[float(loss) for loss in re.findall(r"loss: (\S+),", one)] for one in said], served


def assert_learnt(actual: list[list[float]]) -> None:
    for one in actual:
        assert len(one) == STEPS
        assert sum(one[-20:]) / 20 < 2.1  # of ten classes: an untrained net has 2.3 and more


def test_two_trainers_learn_digits_under_fleetrun(ranks: ForkServer, tmp_path: Path) -> None:
    assert_learnt(losses(ranks, tmp_path, "--mode", "sync", *TRAINED))


def test_two_trainers_learn_digits_asynchronously(ranks: ForkServer) -> None:
    assert_learnt(losses_on(ranks, "--mode", "async", "--dc_asgd", *TRAINED, workers=2)[0])


def test_a_resnet_trains_on_a_server(ranks: ForkServer) -> None:
    words = ["--model", "resnet", "--image_size=32", "--batch_size=4", "--max_steps=2", "--print_programs"]
    (one,), served = losses_on(ranks, *words, f"--layers={LEAST}", workers=1)
    assert len(one) == 2
    assert "listen_and_serv" in served
    assert "momentum(" in served

"""examples/pserver under fleetrun: an MLP and a ResNet, transpiled."""

# SPDX-License-Identifier: Apache-2.0
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ranks import clean_environ

SCRIPT = Path(__file__).parent.parent.parent / "examples" / "pserver" / "train.py"


def losses(log_dir: Path, *words: str, workers: int = 2) -> list[list[float]]:
    """Run the example with a server; the losses that each worker prints."""
    own = {"ARGOSY_CACHE": os.environ["ARGOSY_CACHE"]}
    launcher = ["--server_num=1", f"--worker_num={workers}", f"--log_dir={log_dir}"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "argosy.distributed.launch",
            *launcher,
            str(SCRIPT),
            "--print_every=1",
            *words,
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=clean_environ() | own | {"OMP_NUM_THREADS": "1", "ARGOSY_HEARTBEAT_S": "0.2"},
    )
    logs = {path.name: path.read_text() for path in log_dir.iterdir()}
    assert done.returncode == 0, (done.stdout, done.stderr, logs)
    assert "server 0 ends after" in logs["serverlog.0"]
    found = [re.findall(r"loss: (\S+),", logs[f"workerlog.{worker}"]) for worker in range(workers)]
    return [[float(loss) for loss in one] for one in found]


@pytest.mark.parametrize("words", [["--mode", "sync"], ["--mode", "async", "--dc_asgd"]])
def test_two_trainers_learn_digits(tmp_path: Path, words: list[str]) -> None:
    for one in losses(tmp_path, *words, "--max_steps=60", "--lr=0.005"):
        assert len(one) == 60
        assert sum(one[-20:]) / 20 < 2.1  # of ten classes: an untrained net has 2.3 and more


def test_a_resnet_trains_on_a_server(tmp_path: Path) -> None:
    words = ["--model", "resnet", "--image_size=32", "--batch_size=4", "--max_steps=2", "--print_programs"]
    (one,) = losses(tmp_path, *words, workers=1)
    assert len(one) == 2
    said = (tmp_path / "serverlog.0").read_text()
    assert "listen_and_serv" in said
    assert "momentum(" in said

"""`python -m paddle.distributed.launch` and `launch_ps` under the import hook, and Argosy's own names of them."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from tests.ranks import ForkServer

SCRIPT = """
import os
import paddle
import paddle.fluid as fluid
print(fluid.__name__, os.environ["TRAINING_ROLE"], os.environ.get("FLAGS_selected_gpus"))
"""


@pytest.mark.slow
def test_the_launchers_under_the_hook_start_scripts_under_the_hook(ranks: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ["-m", "argosy.paddle", "-m", "paddle.distributed.launch", "--selected_gpus=5", "train.py"]
    done = ranks.python(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "log" / "workerlog.0").read_text() == "argosy.fluid TRAINER 5\n"


@pytest.mark.slow
def test_launch_ps_starts_servers_and_workers(ranks: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    options = ["--worker_num=1", "--server_num=1", "train.py"]
    done = ranks.python("-m", "argosy.paddle", "-m", "paddle.distributed.launch_ps", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "logs" / "workerlog.0").read_text() == "argosy.fluid TRAINER None\n"
    assert (tmp_path / "logs" / "serverlog.0").read_text() == "argosy.fluid PSERVER None\n"


@pytest.mark.parametrize("module", ["launch", "launch_ps", "fleet.launch"])
def test_invalid_arguments_end_with_2(ranks: ForkServer, tmp_path: Path, module: str) -> None:
    done = ranks.python("-m", f"argosy.distributed.{module}", "--nothing", "train.py", cwd=tmp_path)
    assert (done.returncode, "error: " in done.stderr) == (2, True), done.stderr

"""One script under every launcher that it understands: the same training, the same result as one process."""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import runpy
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.ranks import FOREIGN, ForkServer, clean_environ

pytestmark = pytest.mark.slow

SCRIPT = str(Path(__file__).parent / "scripts" / "train.py")
ENVIRON = clean_environ() | {"OMP_NUM_THREADS": "1"}
PYTHON = [sys.executable, "-W", "error"]
LAUNCHERS = {
    "fleetrun": [*PYTHON, "-m", "argosy.distributed.launch", "--nproc_per_node=2"],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"],
    "mpirun": ["mpirun", "-n", "2", *(["--allow-run-as-root"] if os.getuid() == 0 else []), *PYTHON],
}
BY_HAND = {
    "mpirun's variables": {
        "OMPI_COMM_WORLD_RANK": "{rank}",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_RANK": "{rank}",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    },
    "srun's variables": {
        "SLURM_PROCID": "{rank}",
        "SLURM_LOCALID": "{rank}",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURM_NODEID": "0",
        "SLURM_JOB_ID": "77",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "node[01]",
    },
}


def weights(directory: Path, rank: int) -> Mapping[str, np.ndarray]:
    with np.load(directory / f"weights.{rank}.npz") as file:
        return dict(file)


def check_equal(directory: Path, alone: Path) -> None:
    """Both ranks have the same parameters, and those are of one process with the whole batch."""
    first, second, wanted = weights(directory, 0), weights(directory, 1), weights(alone, 0)
    assert set(first) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_array_equal(first[name], second[name])
        np.testing.assert_allclose(first[name], value, rtol=1e-6, atol=1e-6)


def train_with_given_variables() -> None:
    """On a rank of the fork server: train with these variables instead of fleetrun's."""
    rank, given = os.environ["PADDLE_TRAINER_ID"], json.loads(os.environ["GIVEN"])
    for name in [n for n in os.environ if n.startswith(FOREIGN)]:
        del os.environ[name]
    os.environ |= {name: text.format(rank=rank) for name, text in given.items()}
    sys.argv = [SCRIPT, f"--out={os.environ['OUT']}"]
    runpy.run_path(SCRIPT, run_name="__main__")


@pytest.fixture(scope="module")
def alone(ranks: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the result of one process."""
    directory = tmp_path_factory.mktemp("alone")
    ranks.check(1, train_with_given_variables, GIVEN="{}", OUT=str(directory))
    return directory


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launcher_trains_as_one_process_does(launcher: str, alone: Path, tmp_path: Path) -> None:
    command = [*LAUNCHERS[launcher], SCRIPT]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed; its variables are tested below")
    done = subprocess.run(
        command, cwd=tmp_path, env=ENVIRON, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    check_equal(tmp_path, alone)


@pytest.mark.parametrize("launcher", BY_HAND)
def test_ranks_with_a_launchers_variables_train_as_one_process_does(
    launcher: str, alone: Path, tmp_path: Path, ranks: ForkServer
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = {"MASTER_PORT": str(taken.getsockname()[1])}
    given = json.dumps(BY_HAND[launcher] | port)
    ranks.check(2, train_with_given_variables, GIVEN=given, OUT=str(tmp_path))
    check_equal(tmp_path, alone)

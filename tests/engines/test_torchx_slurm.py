"""TorchX on a real Slurm of two nodes without accounting: it submits, but cannot follow."""

# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engines.proof import EngineJob

pytest.importorskip("torchx", reason="pip install torchx")
ROOT = Path(__file__).parents[2]


def fleetrun(cluster: Any, job: EngineJob, *words: str) -> Any:
    command = (sys.executable, "-W", "error", "-m", "argosy.distributed.launch", "--on=torchx", *words)
    environ = {"PYTHONPATH": str(ROOT), "ARGOSY_JOB_TOKEN": "0123456789abcdef"}
    return cluster.run(*command, environ=environ, cwd=job.directory)


def test_a_job_of_two_nodes_is_submitted_and_completes(cluster: Any, job: EngineJob) -> None:
    job.script("import socket\nprint('rank', os.environ['PADDLE_TRAINER_ID'], 'on', socket.gethostname())\n")
    done = fleetrun(cluster, job, "--scheduler=slurm", "--partition=all", "--nodes=2", "--quiet", "train.py")
    assert done.returncode == 0, done.stderr
    handle = done.stdout.split("--attach ")[1].strip()
    assert handle.startswith("slurm://torchx/")
    number = handle.rpartition("/")[2]
    cluster.wait(lambda: cluster.job(number)["JobState"] in ("COMPLETED", "FAILED"), "end of the job")
    text = (job.directory / f"slurm-{number}.out").read_text()
    assert "job exited with code 0" in text
    assert "0123456789abcdef" not in text
    logs = [(job.directory / "log" / f"node-{node}" / "workerlog.0").read_text() for node in (0, 1)]
    assert logs == ["rank 0 on n0\n", "rank 1 on n1\n"]
    assert "rank 0 on n0" in (job.directory / f"slurm-{number}-node-0.out").read_text()
    attached = fleetrun(cluster, job, "--attach", handle)
    assert attached.returncode == 2
    assert "it needs accounting (sacct)" in attached.stderr

"""The endpoint of node 0, from Slurm's variables."""

# SPDX-License-Identifier: Apache-2.0
import socket
import subprocess
import sys

import pytest

from argosy.engine.cluster.slurm_rendezvous import endpoint
from argosy.engine.errors import ConfigError


def test_the_first_host_and_a_free_port() -> None:
    master = endpoint({"SLURM_JOB_NODELIST": "localhost,n[1-3]"})
    assert master.host == "localhost"
    with socket.create_server(("", master.port)):
        pass


def test_outside_of_a_job_it_is_an_error() -> None:
    with pytest.raises(ConfigError, match="SLURM_JOB_NODELIST is not set"):
        endpoint({})


def test_it_starts_without_torch() -> None:
    code = (
        "import sys, argosy.engine.cluster.slurm_rendezvous, argosy.engine.cluster.slurm; "
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

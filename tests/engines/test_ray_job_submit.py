"""`ray job submit -- fleetrun --on=ray …`: Ray's job server starts fleetrun, with the files that it has copied."""

# SPDX-License-Identifier: Apache-2.0
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.proof import WAIT, wait_until
from tests.engines.ray_nodes import PATIENT

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None or importlib.util.find_spec("aiohttp_cors") is None,
    reason="ray[default], which has the job server, is not installed",
)
RAY = [sys.executable, "-m", "ray.scripts.scripts"]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def server() -> Iterator[str]:
    """The address of the job server of a cluster of one node."""
    folder = tempfile.mkdtemp(prefix="argosy-")  # short: paths of sockets have a limit
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = ["--head", "--port=0", "--num-cpus=4", f"--temp-dir={folder}", "--block"]
    dashboard = ["--include-dashboard=true", "--dashboard-host=127.0.0.1", f"--dashboard-port={port}"]
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT), "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    with Path(folder, "output").open("wb") as output:
        head = subprocess.Popen(
            [*RAY, "start", *options, *dashboard],
            env=os.environ | settings | PATIENT,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(head.pid, signal.SIGTERM)
        head.wait()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_submitted_job_runs_fleetrun_on_the_cluster(server: str, tmp_path: Path) -> None:
    shutil.copy(WAIT, tmp_path / "script.py")
    fleetrun = [
        sys.executable,
        "-m",
        "argosy.distributed.launch",
        "--on=ray",
        "--nodes=1",
        "--nproc_per_node=2",
    ]
    submit = [*RAY, "job", "submit", f"--address={server}", f"--working-dir={tmp_path}", "--"]
    done: list[subprocess.CompletedProcess[str]] = []

    def is_submitted() -> bool:
        """Until the job server listens, the command fails at once."""
        done.append(
            subprocess.run(
                [*submit, *fleetrun, "script.py", "1"],
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
        )
        return "Failed to connect" not in done[-1].stderr + done[-1].stdout

    wait_until(is_submitted, 120, lambda: done[-1].stdout + done[-1].stderr)
    output = done[-1].stdout + done[-1].stderr
    assert done[-1].returncode == 0, output
    assert "worker 0 waits" in output
    assert "succeeded" in output

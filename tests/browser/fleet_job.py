"""A real job with a dashboard: fleetrun as a process."""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
WAIT_S = 240.0
"""For the start of a job on a machine that may be busy."""
COLLECTIVE = ("--nproc_per_node=2",)
SERVERS = ("--server_num=2", "--worker_num=2")


@dataclass
class FleetJob:
    """A running job."""

    log_dir: Path
    process: subprocess.Popen[bytes]

    def job(self) -> dict[str, Any]:
        """job.json; empty before it is written."""
        try:
            content: dict[str, Any] = json.loads((self.log_dir / "job.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return content

    @property
    def url(self) -> str:
        return str(self.job()["dashboard"])

    def kill(self, rank: int) -> float:
        """Kill a rank; returns when."""
        pid = next(p["pid"] for p in self.job()["processes"] if p["rank"] == rank and p["role"] != "server")
        os.kill(pid, signal.SIGKILL)
        return time.time()

    def wait_for_server(self) -> None:
        """Wait until the dashboard answers."""
        deadline = time.monotonic() + WAIT_S
        while not self._answers():
            output = (self.log_dir.parent / "output").read_text()[-2000:]
            assert self.process.poll() is None, f"fleetrun has ended: {output}"
            assert time.monotonic() < deadline, f"no dashboard after {WAIT_S} s: {output}"
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self.url, timeout=10):
                return True
        except (OSError, KeyError, ValueError):
            return False


@contextmanager
def fleet_job(directory: Path, script: str, *options: str, steps: int = 1_000_000) -> Iterator[FleetJob]:
    """A job of this script, with a dashboard that answers; it ends by SIGTERM, if it has not ended by itself."""
    directory.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "argosy.engine.launch", "--log_dir=log", "--dashboard=0", *options]
    environ = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(
            [*command, str(HERE / script), str(steps)],
            cwd=directory,
            env=environ,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        job = FleetJob(directory / "log", process)
        job.wait_for_server()
        yield job
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()

"""`python -m argosy.dashboard` as a process, for tests."""

# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "argosy.dashboard"]


@contextmanager
def served(log_dir: Path, *options: str, token: str = "") -> Iterator[str]:
    """The address of a server, http://host:port; it ends by SIGTERM within seconds, with exit code 0."""
    with running(log_dir, *options, token=token) as (_, address):
        yield address


@contextmanager
def running(log_dir: Path, *options: str, token: str = "") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and its address."""
    environ = os.environ | {"PYTHONPATH": str(ROOT), "ARGOSY_JOB_TOKEN": token}
    command = [*COMMAND, str(log_dir), *(options or ("--port=0",))]
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("dashboard: http://"), line
        yield process, "/".join(line.split()[1].split("/")[:3])
    finally:
        process.terminate()
        try:
            process.wait(20)
        finally:
            process.kill()
            process.communicate()

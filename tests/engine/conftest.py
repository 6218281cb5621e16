"""run_ranks: run a function of a test file in several real processes that are connected to each other."""

# SPDX-License-Identifier: Apache-2.0
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

_CHILD = """
import runpy, sys
from argosy.engine import collective
collective.connect()
runpy.run_path(sys.argv[1])[sys.argv[2]]()
"""
ROOT = Path(__file__).parents[2]


def _run_ranks(ranks: int, function: Callable[[], None]) -> None:
    """Run a function without arguments, of the top level of its file, on so many ranks; it asserts by itself."""
    store = socket.create_server(("127.0.0.1", 0))
    foreign = ("PADDLE_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "ARGOSY_", "OMPI_", "PMI", "SLURM_")
    base = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    base |= {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.getsockname()[1])}
    base |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "ARGOSY_CONNECT_TIMEOUT_S": "60"}
    command = [sys.executable, "-W", "error", "-c", _CHILD, function.__code__.co_filename, function.__name__]
    children = []
    for rank in range(ranks):
        own = {"RANK": str(rank)} | ({"ARGOSY_STORE_FD": str(store.fileno())} if rank == 0 else {})
        children.append(
            subprocess.Popen(
                command,
                env=base | own,
                pass_fds=[store.fileno()] if rank == 0 else [],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    store.close()
    try:
        said = [child.communicate(timeout=120)[0] for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
    failed = [
        f"rank {r}: {text}" for r, (c, text) in enumerate(zip(children, said, strict=True)) if c.returncode
    ]
    assert not failed, "\n".join(failed)


@pytest.fixture
def run_ranks() -> Callable[[int, Callable[[], None]], None]:
    return _run_ranks

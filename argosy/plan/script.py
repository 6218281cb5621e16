"""`python -m argosy.plan SCRIPT`: start the processes that measure a script, as many as a host has ranks.

    this process ──▶ python -m argosy.plan.measuring: process 0 measures, searches and prints
                 └─▶ …                                processes 1 to n - 1 run the same step beside it

Needs no torch. No process is left behind when this one ends.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from argosy.engine import env
from argosy.engine.errors import ConfigError
from argosy.engine.planner.topology import Topology

_END_S = 10.0


def run(script: Path, words: Sequence[str], topology: Topology) -> int:
    """Measure and search; the exit code of process 0. `words`: the arguments of the command and of the script."""
    if not script.is_file():
        raise ConfigError(f"{script} is not a file; give the training script")
    threads, count = processes_of(topology, len(os.sched_getaffinity(0)))
    environ = {**env.variables(), "OMP_NUM_THREADS": str(threads), "ARGOSY_BACKGROUND_SEARCH": "0"}
    with tempfile.TemporaryDirectory(prefix="argosy-plan-") as directory:
        started = []
        try:
            for number in range(count):
                command = [sys.executable, "-m", "argosy.plan.measuring", directory, str(number), str(count)]
                output = None if number == 0 else subprocess.DEVNULL
                started.append(
                    subprocess.Popen([*command, *words], env=environ, stdout=output, stderr=output)
                )
            return started[0].wait()
        finally:
            for process in started:
                _end(process)


def processes_of(topology: Topology, cores: int) -> tuple[int, int]:
    """Threads of a rank, and how many ranks of a host this machine has cores for."""
    kind = topology.hosts[0]
    ranks = min(kind.ranks, topology.num_ranks)
    threads = min(max(1, int(kind.threads)), cores)
    return threads, max(1, min(ranks, cores // threads))


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

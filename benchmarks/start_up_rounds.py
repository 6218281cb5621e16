"""Run the commands of a start-up benchmark in turn, and write the table of their times."""

# SPDX-License-Identifier: Apache-2.0
import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import harness

ROOT = Path(__file__).resolve().parents[1]

SCRIPTS = ROOT / "benchmarks" / "start_up"
FLEETRUN = [sys.executable, "-m", "argosy.distributed.launch"]
THREADS = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def parser(description: str | None) -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=8)
    return p


def start(command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> float:
    """Seconds from the start of the command, which gets the path of a file, to the end of rank 0's first step."""
    done = folder / "done"
    done.unlink(missing_ok=True)
    began = time.time()
    result = subprocess.run(
        [*command, str(done)],
        cwd=folder,
        env={**os.environ, **THREADS, **environ},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return float(done.read_text()) - began


def _cpu_s() -> float:
    """User and system time of all commands so far, with the processes that they waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def cpu_table(results: Mapping[str, harness.Measured]) -> str:
    """A line per command with the median CPU time of the whole job, which depends less on other load."""
    lines = [f"- {name}: {statistics.median(m.cpu_s):.2f} s" for name, m in results.items()]
    return "\n".join(["Median CPU time of the whole job, user and system:", "", *lines, ""])


def measure(
    commands: Mapping[str, Sequence[str]], rounds: int, folder: Path, environ: Mapping[str, str]
) -> dict[str, harness.Measured]:
    """The times of each command, by its name; the first round only brings files into memory."""
    results = {name: harness.Measured() for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            before = _cpu_s()
            seconds = start(command, folder, environ)
            if number:
                results[name].seconds.append(seconds)
                results[name].cpu_s.append(_cpu_s() - before)
        print(f"\r  round {number} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return results

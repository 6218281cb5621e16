"""Trials: every way in which a rank can fail, on several ranks; which rank is blamed, and how soon.

python -m tests.jobs.trials                      the whole matrix, one line per trial
python -m tests.jobs.trials --how=stop --rank=3  a part of it
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tests.engine.launch.conftest import Fleetrun
from tests.jobs.scripts.trial import HOW
from tests.ranks import ForkServer
from tests.warm_fleetrun import WarmFleetrun

SCRIPT = str(Path(__file__).parent / "scripts" / "trial.py")
RANKS = 4
FAILING = (0, 1, 3)
WAIT_S = {"stop": 3.0, "loop": 3.0}
"""The timeout of the others for a rank that is stopped or does something else."""


@dataclass(frozen=True)
class Trial:
    """The report of the launcher on one failure."""

    how: str
    rank: int
    code: int
    report: str
    """What the launcher wrote to stderr, from the headline on."""
    took_s: float
    """From the failure to the headline, less the timeout of the others."""

    @property
    def headline(self) -> str:
        return self.report.partition("\n")[0]

    def problems(self) -> list[str]:
        """What is wrong with the report; its time is not checked."""
        expected = f"RankFailed: rank {self.rank} of {RANKS} on "
        problems = [] if self.headline.startswith(expected) else [f"headline: {self.headline!r}"]
        if not re.search(STATE[self.how], self.headline):
            problems.append(f"{STATE[self.how]!r} is not in the headline: {self.headline!r}")
        if self.code != 1:
            problems.append(f"exit code {self.code}")
        if "another host" in self.report:
            problems.append("another host is blamed")
        if "Traceback" in self.report.replace("| Traceback", ""):
            problems.append("a traceback of the launcher")
        return problems


STATE = {
    "exception": "ended with exit code 1",
    "sys.exit": "ended with exit code 3",
    "SystemExit": "ended with exit code 3",
    "_exit0": "ended with exit code 0",
    "_exit1": "ended with exit code 1",
    "return": "ended with exit code 0|has left the job without error",  # the shutdown of torch takes a while
    "kill": "ended with SIGKILL",
    "stop": "is stopped",
    "loop": "is alive, but did not join the others",
}


def run(how: str, rank: int, directory: Path, ranks: ForkServer | None = None) -> Trial:
    """Run one job in this directory; with a fork server, its processes are forked from it."""
    fleetrun = Fleetrun(directory)
    wait_s = WAIT_S.get(how, 0.0)
    environ = {"OMP_NUM_THREADS": "1"} | (
        {"ARGOSY_HEARTBEAT_TIMEOUT_S": str(wait_s)} if how == "stop" else {}
    )
    words = [f"--timeout={wait_s:g}"] if how == "loop" else []
    words = [f"--nproc_per_node={RANKS}", *words, SCRIPT, how, str(rank)]
    job: subprocess.Popen[str] | WarmFleetrun
    if ranks is None:
        job = fleetrun.start(*words, **environ)
    else:
        job = WarmFleetrun(ranks, *words, cwd=directory, environ=environ)
    try:
        report, reported_at = _read_report(job)
        assert fleetrun.all_gone(within_s=5), f"{how} on rank {rank}: left behind: {fleetrun.alive()}"
    finally:
        job.kill()
        job.wait()
        for left in fleetrun.alive():
            left.kill()
    failed_at = float((directory / "failed_at").read_text())
    return Trial(how, rank, job.returncode, report, reported_at - failed_at - wait_s)


def _read_report(job: subprocess.Popen[str] | WarmFleetrun, timeout_s: float = 90.0) -> tuple[str, float]:
    """Stderr from the headline on, and when the headline was written; returns when the launcher has exited."""
    assert job.stderr is not None
    assert job.stdout is not None
    drain = threading.Thread(target=job.stdout.read)
    drain.start()
    timer = threading.Timer(timeout_s, job.kill)
    timer.start()
    report, at = "", 0.0
    for line in job.stderr:
        if line.startswith("RankFailed"):
            at = at or time.monotonic()
        report += line if at else ""
    job.wait()
    timer.cancel()
    drain.join()
    job.stderr.close()
    job.stdout.close()
    return report, at


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--how", choices=HOW, action="append")
    parser.add_argument("--rank", type=int, action="append")
    parser.add_argument("--verbose", action="store_true", help="show the reports")
    known = parser.parse_args()
    failed = 0
    for how in known.how or HOW:
        for rank in known.rank or FAILING:
            with tempfile.TemporaryDirectory() as directory:
                trial = run(how, rank, Path(directory))
            problems = trial.problems()
            failed += bool(problems)
            print(f"{how:10} rank {rank}  {trial.took_s:5.1f} s  {'; '.join(problems) or 'ok'}", flush=True)
            if known.verbose:
                print(trial.report)
    print(f"{failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())

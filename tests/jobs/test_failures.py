"""Whole jobs under fleetrun in which a rank fails while it trains: who is named, how soon, what is left."""

# SPDX-License-Identifier: Apache-2.0
import re
import time
from pathlib import Path
from subprocess import Popen

import pytest

from tests.engine.launch.conftest import Fleetrun

SCRIPT = str(Path(__file__).parent / "scripts" / "train.py")
PROMISED_S = 5.0
BUSY_S = 5.0
"""What two jobs at the same time, beside other tests on two cores, may take on top of the promise."""


class Failing:
    """A job of two ranks, of which one fails in its fourth step."""

    def __init__(self, directory: Path, how: str, rank: int, **environ: str) -> None:
        directory.mkdir()
        self.rank, self.fleetrun = rank, Fleetrun(directory)
        self.process: Popen[str] = self.fleetrun.start(
            "--nproc_per_node=2", SCRIPT, f"--fail={how}", f"--rank={rank}", **environ
        )

    def end(self) -> str:
        """Wait for the launcher's end; gives its report."""
        try:
            _, err = self.process.communicate(timeout=90)
            self.ended_at = time.monotonic()
            assert self.process.returncode == 1, err
            assert self.fleetrun.all_gone(within_s=2), err
        finally:
            for left in self.fleetrun.alive():
                left.kill()
        return err[err.index("RankFailed") :]

    @property
    def took_s(self) -> float:
        return self.ended_at - float((self.fleetrun.directory / "failed_at").read_text())


def failing(
    directory: Path, how: str, on: tuple[int, ...] = (0, 1), **environ: str
) -> list[tuple[Failing, str]]:
    """Jobs, in each of which another rank fails; rank 0 holds the store."""
    jobs = [Failing(directory / str(rank), how, rank, **environ) for rank in on]
    return [(job, job.end()) for job in jobs]


@pytest.mark.parametrize(
    ("how", "ended", "on"),
    [("exception", "exit code 1", (0,)), ("exit", "exit code 3", (1,)), ("kill", "SIGKILL", (0, 1))],
)
def test_a_rank_that_fails_ends_the_job_and_is_named(
    tmp_path: Path, how: str, ended: str, on: tuple[int, ...]
) -> None:
    for job, report in failing(tmp_path, how, on):
        assert job.took_s < PROMISED_S + BUSY_S
        assert re.match(rf"RankFailed: rank {job.rank} of 2 on \S+ ended with {ended}\b", report), report
        if how == "exception":
            assert "  raised: ValueError: a bad batch\n" in report
            assert re.search(r"  at:     \S*train.py:\d+, in fail\n", report)


def test_a_stopped_rank_ends_the_job_and_is_named(tmp_path: Path) -> None:
    for job, report in failing(tmp_path, "stop", ARGOSY_SILENT_S="2"):
        assert job.took_s < 2 + PROMISED_S + BUSY_S
        assert re.match(rf"RankFailed: rank {1 - job.rank} of 2 ", report), report
        named = {
            0: "rank 0, which holds the job's store, gives no sign of life since ",
            1: "rank 1 has not joined and gives no sign of life since ",
        }
        assert re.search(
            rf"  raised: \S*CollectiveError: all_reduce of '[^']+@GRAD' \(group 'dp', step 4\): {named[job.rank]}",
            report,
        ), report
        assert f"ended by fleetrun for that reason: rank {job.rank}\n" in report


def test_a_rank_that_runs_out_of_data_is_named_with_both_steps(tmp_path: Path) -> None:
    for job, report in failing(tmp_path, "out_of_data", on=(0,)):
        assert re.search(
            rf"CollectiveError: all_reduce of '[^']+@GRAD' \(group 'dp', step 4\): rank {job.rank} ended without error "
            "after 3 steps, while this rank is in step 4: it ran out of data",
            report,
        ), report

"""Jobs under fleetrun in which a rank fails while it trains: the reported rank, the delay, and no process left."""

# SPDX-License-Identifier: Apache-2.0
import re
import time
from pathlib import Path

import pytest

from tests.engine.launch.conftest import Fleetrun
from tests.jobs import trials
from tests.ranks import ForkServer
from tests.warm_fleetrun import WarmFleetrun

SCRIPT = str(Path(__file__).parent / "scripts" / "train.py")
PROMISED_S = 5.0
BUSY_S = 5.0
"""What two concurrent jobs, next to other tests on two cores, may take on top of the promise."""


class Failing:
    """A job of two ranks, of which one fails in its fourth step."""

    def __init__(self, ranks: ForkServer, directory: Path, how: str, rank: int, **environ: str) -> None:
        directory.mkdir()
        self.rank, self.fleetrun = rank, Fleetrun(directory)
        words = ("--nproc_per_node=2", SCRIPT, f"--fail={how}", f"--rank={rank}")
        self.process = WarmFleetrun(ranks, *words, cwd=directory, environ=environ)

    def end(self) -> str:
        """Wait until the launcher exits; returns its report."""
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
    ranks: ForkServer, directory: Path, how: str, on: tuple[int, ...] = (0, 1), **environ: str
) -> list[tuple[Failing, str]]:
    """Jobs, in each of which another rank fails; rank 0 hosts the store."""
    jobs = [Failing(ranks, directory / str(rank), how, rank, **environ) for rank in on]
    return [(job, job.end()) for job in jobs]


@pytest.mark.parametrize(
    ("how", "ended", "on"),
    [
        ("exception", "exit code 1", (1,)),
        ("kill", "SIGKILL", (0,)),
        pytest.param("exit", "exit code 3", (1,), marks=pytest.mark.slow),
        pytest.param("kill", "SIGKILL", (1,), marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_fails_ends_the_job_and_is_reported(
    ranks: ForkServer, tmp_path: Path, how: str, ended: str, on: tuple[int, ...]
) -> None:
    for job, report in failing(ranks, tmp_path, how, on):
        assert job.took_s < PROMISED_S + BUSY_S
        assert re.match(rf"RankFailed: rank {job.rank} of 2 on \S+ ended with {ended}\b", report), report
        if how == "exception":
            assert "  raised: ValueError: a bad batch\n" in report
            assert re.search(r"  at:     \S*train.py:\d+, in fail\n", report)


def test_a_stopped_rank_ends_the_job_and_is_reported(ranks: ForkServer, tmp_path: Path) -> None:
    for job, report in failing(ranks, tmp_path, "stop", ARGOSY_HEARTBEAT_TIMEOUT_S="2"):
        assert job.took_s < 2 + PROMISED_S + BUSY_S
        assert re.match(rf"RankFailed: rank {job.rank} of 2 on \S+ is stopped \(pid \d+\); ", report), report
        states = {
            0: "rank 0, which hosts the job's store, has not replied for ",
            1: "rank 1 has not joined and has sent no heartbeat for ",
        }
        waiting = (
            rf"  rank {1 - job.rank} was waiting for it: \S*CollectiveError: all_reduce of '[^']+@GRAD' "
        )
        assert re.search(rf"{waiting}\(group 'dp', step 4\): {states[job.rank]}", report), report
        assert f"terminated by fleetrun for that reason: rank {job.rank}\n" in report


def test_a_rank_that_runs_out_of_data_is_reported_with_both_steps(ranks: ForkServer, tmp_path: Path) -> None:
    for job, report in failing(ranks, tmp_path, "out_of_data", on=(0,)):
        assert re.match(
            rf"RankFailed: rank {job.rank} of 2 on \S+ (ended with exit code 0|has left) ", report
        )
        assert re.search(
            rf"CollectiveError: all_reduce of '[^']+@GRAD' \(group 'dp', step 4\): rank {job.rank} exited without "
            "error after 3 steps, while this rank is in step 4: it ran out of data",
            report,
        ), report


@pytest.mark.parametrize(
    ("how", "rank"),
    [
        ("_exit0", 3),
        pytest.param("SystemExit", 0, marks=pytest.mark.slow),
        pytest.param("loop", 3, marks=pytest.mark.slow),
        pytest.param("_exit0", 0, marks=pytest.mark.slow),
        pytest.param("return", 1, marks=pytest.mark.slow),
    ],
)
def test_the_rank_that_left_first_is_reported(ranks: ForkServer, tmp_path: Path, how: str, rank: int) -> None:
    """A part of the matrix of tests/jobs/trials.py; test_a_stopped_rank… is another one."""
    trial = trials.run(how, rank, tmp_path, ranks)
    assert trial.problems() == []
    assert trial.took_s < PROMISED_S + BUSY_S

"""Preemption of whole jobs: SIGTERM in the middle, started again, bit-equal to a run without it."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from tests.engine.runtime import checkpoint_job, checkpoint_ps_job
from tests.engine.runtime.test_checkpoint_kills import arguments, assert_equal_results, train
from tests.ranks import ForkServer
from tests.warm_fleetrun import WarmFleetrun

JOB, PS_JOB = checkpoint_job.__file__, checkpoint_ps_job.__file__
NOT_DUE = "1000"
"""Checkpoint(every=…): no step of the job is due."""


def run(ranks: ForkServer, folder: Path, *words: str) -> tuple[int | None, str]:
    folder.mkdir(exist_ok=True)
    job = WarmFleetrun(ranks, *words, cwd=folder, environ={})
    said = "".join(job.communicate(120.0))
    return job.returncode, said


@pytest.mark.slow
def test_a_preempted_job_resumes_and_ends_equal(tmp_path: Path, ranks: ForkServer) -> None:
    ranks.check(2, train, 200.0, **arguments(tmp_path / "straight"))
    launch = ["--nproc_per_node=2", "--max_restarts=3", "--grace=60", JOB, ".", "--every", NOT_DUE]
    cases = {"launcher": ["--term-launcher", "--kill-rank", "0"], "rank": ["--kill-rank", "1"]}
    for name, target in cases.items():
        folder = tmp_path / name
        code, said = run(ranks, folder, *launch, "--term-step", "7", *target)
        assert code == 75, said
        assert "RankFailed" not in said
        assert "restart 1" not in said
        (saved,) = (folder / "checkpoints").glob("step-*")
        assert f"preempted: step {int(saved.name[5:])} is saved in {saved}" in said
        code, said = run(ranks, folder, *launch)
        assert code == 0, said
        assert f"resumed at step {int(saved.name[5:])} " in said
        assert_equal_results(folder, tmp_path / "straight", ranks=2)


@pytest.mark.slow
def test_a_preempted_job_with_servers_resumes_and_ends_equal(tmp_path: Path, ranks: ForkServer) -> None:
    launch = ["--server_num=1", "--worker_num=2", "--grace=60", "--requeue_code=99", PS_JOB]
    code, said = run(ranks, tmp_path / "straight", *launch)
    assert code == 0, said
    for name, target in {"launcher": ["--term-launcher"], "worker": ["--term-worker", "1"]}.items():
        folder = tmp_path / name
        code, said = run(ranks, folder, *launch, "--term-step", "5", *target)
        assert code == 99, said
        (saved,) = (folder / "checkpoints").glob("step-*")
        assert f"preempted: step {int(saved.name[5:])} is saved in {saved}" in said
        code, said = run(ranks, folder, *launch)
        assert code == 0, said
        assert f"resumed at step {int(saved.name[5:])} " in said
        assert_equal_results(folder, tmp_path / "straight", ranks=2)

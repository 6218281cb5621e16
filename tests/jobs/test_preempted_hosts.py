"""Preemption on two hosts (network namespaces), a fleetrun on each: SIGTERM on one of them stops both."""

# SPDX-License-Identifier: Apache-2.0
import os
import signal
import time
from pathlib import Path

import pytest

from tests.engine.runtime import checkpoint_job, checkpoint_ps_job
from tests.engine.runtime.test_checkpoint_kills import assert_equal_results
from tests.jobs.test_lab import a_lab
from tests.ranks import ForkServer
from tests.warm_fleetrun import WarmFleetrun


def start(ranks: ForkServer, names: list[str], folder: Path, *words: str) -> list[WarmFleetrun]:
    """A fleetrun on each host."""
    folder.mkdir(exist_ok=True)
    environ = {"ARGOSY_JOB_TOKEN": "one-word-for-both-hosts"}
    return [
        WarmFleetrun(ranks, f"--log_dir=log-{name}", *words, cwd=folder, environ=environ, host=name)
        for name in names
    ]


def ends(jobs: list[WarmFleetrun]) -> list[tuple[int | None, str]]:
    """The exit code and the output of each."""
    said = ["".join(job.communicate(timeout=120)) for job in jobs]
    return [(job.returncode, text) for job, text in zip(jobs, said, strict=True)]


def run(ranks: ForkServer, names: list[str], folder: Path, *words: str) -> list[tuple[int | None, str]]:
    return ends(start(ranks, names, folder, *words))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ranks", "servers"])
def test_a_job_that_is_preempted_on_one_host_resumes_and_ends_equal(
    tmp_path: Path, ranks: ForkServer, kind: str
) -> None:
    with a_lab(rate=None) as lab:
        one, other = lab.addresses
        words = [f"--ips={one},{other}", "--nproc_per_node=1", checkpoint_job.__file__, ".", "--every=1000"]
        target = ["--kill-rank=1"]
        if kind == "servers":
            words = [f"--servers={one}:6174", f"--workers={one},{other}", checkpoint_ps_job.__file__]
            target = ["--term-worker=1"]
        for code, said in run(ranks, lab.names, tmp_path / "straight", *words):
            assert code == 0, said
        words = ["--grace=60", *words]
        folder = tmp_path / "preempted"
        preempted = run(ranks, lab.names, folder, *words, "--term-step=4", "--term-launcher", *target)
        assert [code for code, _ in preempted] == [75, 75], preempted
        (saved,) = (folder / "checkpoints").glob("step-*")
        for _, said in preempted:
            assert f"preempted: step {int(saved.name[5:])} is saved in {saved}" in said
        assert "SIGTERM" not in preempted[0][1]  # that of host 1 only
        for code, said in run(ranks, lab.names, folder, *words):
            assert code == 0, said
    assert_equal_results(folder, tmp_path / "straight", ranks=2)


@pytest.mark.slow
def test_sigterm_on_a_host_that_has_only_servers_preempts_the_job(tmp_path: Path, ranks: ForkServer) -> None:
    with a_lab(rate=None) as lab:
        one, other = lab.addresses
        words = ["--grace=60", f"--servers={one}:6174", f"--workers={other},{other}"]
        words += [checkpoint_ps_job.__file__, "--term-step=4", "--term-elsewhere"]
        jobs = start(ranks, lab.names, tmp_path, *words)
        until = time.monotonic() + 60
        while not (tmp_path / "ready").exists():
            assert time.monotonic() < until, ends(jobs)
            time.sleep(0.02)
        os.kill(jobs[0].pid, signal.SIGTERM)
        preempted = ends(jobs)
    assert [code for code, _ in preempted] == [75, 75], preempted
    (saved,) = (tmp_path / "checkpoints").glob("step-*")
    assert f"preempted: step {int(saved.name[5:])} is saved in {saved}" in preempted[1][1]
    assert "preempted: the workers have saved a checkpoint; exit code 75" in preempted[0][1]

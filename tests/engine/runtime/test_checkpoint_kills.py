"""Checkpoints and real kills: of one process at any moment, of one rank of two, and parts that are missing."""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import argosy as paddle
from argosy import nn, static
from argosy.engine import collective
from argosy.engine.errors import ConfigError
from argosy.engine.runtime import atomic_files
from argosy.engine.runtime.checkpoint import Checkpoint, Position
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope
from tests.engine.runtime import checkpoint_job
from tests.ranks import ForkServer
from tests.warm_fleetrun import WarmFleetrun

JOB = checkpoint_job.__file__


def train() -> None:
    """On a rank: the job with the test's arguments."""
    sys.argv = ["checkpoint_job.py", *json.loads(os.environ["ARGUMENTS"])]
    checkpoint_job.main()


def arguments(folder: Path, *options: str) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    return {"ARGUMENTS": json.dumps([str(folder), *options])}


def assert_equal_results(actual: Path, wanted: Path, ranks: int = 1) -> None:
    for rank in range(ranks):
        one, other = np.load(actual / f"result-{rank}.npz"), np.load(wanted / f"result-{rank}.npz")
        assert sorted(one) == sorted(other)
        assert [name for name in one if not np.array_equal(one[name], other[name])] == []


def test_a_job_killed_at_any_moment_resumes_and_ends_with_equal_values(
    tmp_path: Path, ranks: ForkServer
) -> None:
    # So wide a layer that saving takes longer than training: most kills hit a save.
    options = ("--hidden", "40000", "--every", "1")
    kills = random.Random()
    given = arguments(tmp_path / "killed", *options)
    for _ in range(3):
        with ranks.start(1, train, **given) as job:
            job.wait_for(0, "step", 60)
            time.sleep(kills.uniform(0, 0.4))
            job.kill(0, kills.choice([signal.SIGKILL, signal.SIGTERM]))
            assert job.end_of(0).code < 0
        parts = sorted((tmp_path / "killed" / "checkpoints").glob("step-*/rank-0-of-1.safetensors"))
        for path in parts:
            atomic_files.read_tensors(path)  # what is there under its name is whole
    ranks.check(1, train, 200.0, **given)
    ranks.check(1, train, 200.0, **arguments(tmp_path / "straight", *options))
    assert_equal_results(tmp_path / "killed", tmp_path / "straight")
    # A kill may have hit a writer that had only begun: a young folder without data could be one that is at work.
    assert not list((tmp_path / "killed" / "checkpoints").rglob("*.tmp/data"))


def test_fleetrun_restarts_a_job_whose_rank_was_killed_and_it_ends_equal(
    tmp_path: Path, ranks: ForkServer
) -> None:
    step = random.Random().randrange(3, 20)  # from the first checkpoint on: a second life has other seeds
    ranks.check(2, train, 200.0, **arguments(tmp_path / "straight"))
    folder = tmp_path / "killed"
    folder.mkdir()
    launch = ["--nproc_per_node=2", "--max_restarts=1", "--log_dir", "log"]
    words = [*launch, JOB, ".", "--kill-step", str(step), "--kill-rank", "1"]
    job = WarmFleetrun(ranks, *words, cwd=folder, environ={})
    said = "".join(job.communicate(200.0))
    assert job.returncode == 0, said
    assert "SIGKILL" in said
    assert f"resumed at step {step // 3 * 3} " in said
    assert_equal_results(folder, tmp_path / "straight", ranks=2)


# --- what ranks make of missing parts ---------------------------------------------------------------------


def job(width: int = 3) -> tuple[Executor, Any, Scope]:
    main, startup, scope = static.Program(), static.Program(), Scope()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 2])
        loss = paddle.mean(nn.BatchNorm1D(width)(nn.Linear(2, width)(x)))
        paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)
    exe = Executor()
    exe.run(startup, scope=scope)
    exe.run(main, feed={"x": np.full((4, 2), collective.world().rank, "float32")}, scope=scope)
    return exe, main, scope


def same_folder() -> Path:
    """A folder for all ranks, made by rank 0."""
    folder = tempfile.mkdtemp() if collective.world().rank == 0 else ""
    return Path(collective.world().group("util").all_gather_bytes(folder.encode())[0].decode())


def ranks_agree() -> None:
    collective.connect()
    rank, util = collective.world().rank, collective.world().group("util")
    folder = same_folder()
    own, other = folder / f"rank-{rank}", folder / "together"
    try:
        # Folders of their own, as on hosts without a shared file system: only rank 0 has the parameters.
        exe, main, scope = job()
        for step in (1, 2, 3):
            scope.get("linear_0.w_0").fill_(10 * step + rank)
            scope.get("batch_norm1d_0.w_1").fill_(20 * step + rank)
            Checkpoint(own).save(step, exe, main, epoch=step, scope=scope)
        held, _ = atomic_files.read_tensors(own / "step-00000003" / f"rank-{rank}-of-2.safetensors")
        assert ("linear_0.w_0" in held) == (rank == 0)
        assert any("velocity" in name for name in held) == (rank == 0)
        assert "batch_norm1d_0.w_1" in held
        if rank == 1:
            (own / "step-00000003" / "rank-1-of-2.safetensors").unlink()
        util.barrier()
        assert Checkpoint(own).restore(exe, main, scope) == Position(2, 2, 0)
        assert scope.get("linear_0.w_0").unique().tolist() == [20.0]  # rank 0's
        assert scope.get("batch_norm1d_0.w_1").unique().tolist() == [40.0 + rank]  # everybody's own
        # Parts of two saves of one step are no checkpoint, even if each is whole.
        before = own / "step-00000002" / f"rank-{rank}-of-2.safetensors"
        shutil.copy(before, own / "old")
        Checkpoint(own).save(2, exe, main, scope=scope)
        if rank == 1:
            shutil.copy(own / "old", before)
        util.barrier()
        assert Checkpoint(own).restore(exe, main, scope) == Position(1, 1, 0)
        # A program that differs on one rank is refused on all of them.
        Checkpoint(other).save(1, exe, main, scope=scope)
        others = job(3 + rank)
        with pytest.raises(ConfigError, match=r"of another program: .* \(rank 1\)"):
            Checkpoint(other).restore(*others)
        util.barrier()
        assert {p.name for p in (other / "step-00000001").iterdir()} == {
            "rank-0-of-2.safetensors",
            "rank-1-of-2.safetensors",
        }
        util.barrier()
    finally:
        shutil.rmtree(own, ignore_errors=True)
        if rank == 0:
            shutil.rmtree(folder, ignore_errors=True)


def test_ranks_agree_on_the_newest_step_that_all_have(ranks: ForkServer) -> None:
    ranks.check(2, ranks_agree)

"""The 1.x fleet for collective training: two ranks learn what one process learns from both batches."""

# SPDX-License-Identifier: Apache-2.0
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from argosy import fluid
from argosy.distributed.fleet import DistributedStrategy as FleetStrategy
from argosy.engine import collective
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.fluid.incubate.fleet.base import role_maker
from argosy.fluid.incubate.fleet.collective import (
    Collective,
    CollectiveOptimizer,
    DistributedStrategy,
    TrainStatus,
    fleet,
)
from tests import fleet_jobs as jobs
from tests.ranks import ForkServer

STEPS = 4


def case() -> dict[str, Any]:
    return dict(json.loads(os.environ["CASE"]))


def trains() -> None:
    """Train on this rank's half of each batch, with the fields of the strategy from the environment."""
    given = case()
    fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
    rank, net = fleet.worker_index(), jobs.build(False, jobs.SEED)
    strategy = DistributedStrategy()
    for name, value in given["fields"].items():
        setattr(strategy, name, value)
    optimizer = fleet.distributed_optimizer(jobs.OPTIMIZERS[given["optimizer"]](), strategy)
    optimizer.minimize(net.loss)
    with pytest.raises(ConfigError, match="set it before minimize"):
        strategy.use_amp = True
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fleet.startup_program)
    for step in range(STEPS):
        exe.run(fleet.main_program, feed=jobs.fed(net, jobs.batch(step, rank, fleet.worker_num())))
    np.savez(f"{given['folder']}/{rank}.npz", **jobs.parameters(fleet._origin_program))
    fleet.save_persistables(exe, given["folder"], filename="all")
    fleet.barrier_worker()
    _resumes(exe, given["folder"])


def _resumes(exe: fluid.Executor, folder: str) -> None:
    """Rank 0 saves two checkpoints, each rank loads the newer one."""
    scope = fluid.global_scope()
    name = fleet.main_program.all_parameters()[0].name
    saved = scope.get(name).clone()
    if fleet.is_first_worker():
        for epoch in (0, 1):
            fleet.save_checkpoint(
                exe, f"{folder}/checkpoints", 0, TrainStatus(epoch), remain_all_checkpoint=epoch == 0
            )
    fleet.barrier_worker()
    scope.get(name).zero_()
    status = fleet.load_checkpoint(exe, f"{folder}/checkpoints", trainer_id=fleet.worker_index())
    assert status == TrainStatus(1)
    assert scope.get(name).equal(saved)


FIELDS: dict[str, dict[str, Any]] = {
    "default": {},
    "collective": {"mode": "collective", "collective_mode": "grad_allreduce", "nccl_comm_num": 2},
    "local_sgd": {"use_local_sgd": True, "fuse_all_reduce_ops": False},
}


@pytest.mark.parametrize("name", FIELDS)
def test_two_ranks_learn_what_one_process_learns(ranks: ForkServer, tmp_path: Path, name: str) -> None:
    """Local SGD too: with SGD, the mean of the updated parameters is the update by the mean gradient."""
    optimizer = "sgd" if name == "local_sgd" else "momentum"
    given = {"fields": FIELDS[name], "optimizer": optimizer, "folder": str(tmp_path)}
    ranks.check(2, trains, CASE=json.dumps(given))
    wanted = jobs.alone(False, optimizer, STEPS)
    for rank in range(2):
        actual = np.load(tmp_path / f"{rank}.npz")
        for parameter, value in wanted.items():
            np.testing.assert_allclose(actual[parameter], value, rtol=1e-5, atol=1e-6, err_msg=parameter)
    assert (tmp_path / "all").is_file()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["__paddle_fleet_checkpoint__.1"]


@pytest.fixture
def alone() -> Any:
    """A collective job of one rank."""
    job = Collective()
    job.init()
    yield job
    collective.disconnect()


def test_a_job_of_one_rank_trains_and_its_optimizer_is_the_inner_one_otherwise(alone: Collective) -> None:
    net, sgd = jobs.build(False), fluid.optimizer.SGD(0.25)
    optimizer = CollectiveOptimizer(sgd)
    optimizer.print_config = True
    updates, pairs = optimizer.minimize(net.loss)
    assert (len(updates), len(pairs), optimizer.get_lr()) == (4, 4, 0.25)
    assert alone.main_program is default_main_program() is alone._transpiled_program
    assert alone.startup_program is default_startup_program()
    assert alone.split_files(["a", "b"]) == ["a", "b"]
    assert (alone.worker_num(), alone.is_worker(), alone.is_server(), alone.is_xpu()) == (
        1,
        True,
        False,
        False,
    )


def test_what_a_script_gives_is_checked(alone: Collective, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(
        ConfigError, match=r"a DistributedStrategy; use DistributedStrategy of fluid\.incubate"
    ):
        alone.distributed_optimizer(fluid.optimizer.SGD(0.1), FleetStrategy())  # type: ignore[arg-type]
    for call in (alone.init_server, alone.run_server, alone.init_worker, alone.stop_worker):
        call()
        assert f"fleet.{call.__name__} does nothing in a collective job" in caplog.text
    with pytest.raises(ConfigError, match="output has 1 elements, input 2"):
        alone.all_reduce_worker([1, 2], [0])
    with pytest.raises(ConfigError, match="before minimize"):
        _ = Collective.main_program.fget(_without_programs(alone))  # type: ignore[attr-defined]


def _without_programs(job: Collective) -> Collective:
    job._fleet._programs = None
    return job


def test_a_role_maker_for_servers_is_rejected() -> None:
    with pytest.raises(
        ConfigError, match=r"for collective jobs, .* use PaddleCloudRoleMaker\(is_collective=True\)"
    ):
        Collective().init(role_maker.PaddleCloudRoleMaker())
    with pytest.raises(ConfigError, match="role_maker is a Program"):
        Collective().init(Program())  # type: ignore[arg-type]

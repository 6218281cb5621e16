"""The 1.x fleet with parameter servers: scripts of real processes learn what one process, or fleet 2.0, learns."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from argosy import fluid
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program
from argosy.engine.runtime.scope import Scope
from argosy.fluid.incubate.fleet.base import role_maker
from argosy.fluid.incubate.fleet.parameter_server.distribute_transpiler import (
    DistributeTranspilerConfig,
    FleetTranspiler,
    StrategyFactory,
    fleet,
)
from tests import fleet_jobs as jobs
from tests.ranks import ForkServer


def strategy(name: str) -> Any:
    """A strategy by its name: of the factory, or as a config of the transpiler."""
    if name != "config":
        number = [2] if name == "geo" else []
        return getattr(StrategyFactory, f"create_{name}_strategy")(*number)
    config = DistributeTranspilerConfig()
    config.slice_var_up, config.split_method = False, fluid.transpiler.HashName
    return config


def trains() -> None:
    """A worker trains some steps as a 1.x script does, and notes its parameters; a server serves."""
    given = jobs.case()
    rank = jobs.take_role(given["workers"])
    fleet.init(role_maker.PaddleCloudRoleMaker())
    # Each process draws values of its own; the order in which whole variables are placed is drawn from the seed, too.
    net = jobs.build(given["table"], jobs.SEED + rank * (given["strategy"] != "config"))
    # The rows of a table that a batch does not look up keep their velocity, so that momentum would differ.
    optimizer = jobs.OPTIMIZERS["sgd" if given["table"] else "momentum"]()
    optimizer = fleet.distributed_optimizer(optimizer, strategy(given["strategy"]))
    optimizer.minimize(net.loss)
    if fleet.is_server():
        fleet.init_server(given.get("model_dir"))
        fleet.run_server()
        return
    exe = fluid.Executor(fluid.CPUPlace())
    fleet.init_worker()
    exe.run(fleet.startup_program)
    for step in range(given["first"], given["last"]):
        exe.run(fleet.main_program, feed=jobs.fed(net, jobs.batch(step, rank, given["workers"])))
    output = np.zeros(2)
    fleet.all_reduce_worker([1.0, rank], output)
    actual = jobs.parameters(default_main_program())
    if given["table"]:
        actual["table"] = jobs.table_rows()
    if fleet.is_first_worker() and "save" in given:
        fleet.save_persistables(exe, f"{given['save']}/all")
        fleet.save_inference_model(exe, f"{given['save']}/inference", ["x", "a", "b"], [net.out])
    fleet.barrier_worker()
    fleet.stop_worker()
    np.savez(f"{given['folder']}/{rank}.npz", reduced=output, **actual)


def run(ranks: ForkServer, folder: Path, workers: int, servers: int, **given: Any) -> list[jobs.Arrays]:
    case = {"first": 0, "last": 6, "table": False} | given
    return jobs.run(ranks, trains, folder, case, workers, servers)[0]


def assert_equal(actual: jobs.Arrays, wanted: jobs.Arrays) -> None:
    for name, value in wanted.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", ["sync", pytest.param("config", marks=pytest.mark.slow)])
def test_synchronous_workers_learn_what_one_process_learns(
    ranks: ForkServer, tmp_path: Path, name: str
) -> None:
    workers = run(ranks, tmp_path, 2, 2, strategy=name)
    wanted = jobs.alone(False, "momentum", 6)
    for actual in workers:
        assert_equal(actual, wanted)
        assert actual["reduced"].tolist() == [2.0, 1.0]


@pytest.mark.parametrize(
    "name", ["geo", *(pytest.param(n, marks=pytest.mark.slow) for n in ("async", "half_async"))]
)
def test_a_single_worker_learns_what_one_process_learns_in_every_mode(
    ranks: ForkServer, tmp_path: Path, name: str
) -> None:
    (actual,) = run(ranks, tmp_path, 1, 1, strategy=name, table=True)
    assert_equal(actual, jobs.alone(True, "sgd", 6))


def test_a_second_job_continues_from_the_saved_variables(ranks: ForkServer, tmp_path: Path) -> None:
    """Parameters and rows of the table: three steps and three steps are six steps."""
    common = {"strategy": "sync", "table": True}
    run(ranks, tmp_path, 1, 2, **common, last=3, save=str(tmp_path))
    (actual,) = run(ranks, tmp_path, 1, 1, **common, first=3, model_dir=str(tmp_path / "all"))
    assert_equal(actual, jobs.alone(True, "sgd", 6))
    with fluid.scope_guard(Scope()):
        program, feeds, targets = fluid.io.load_inference_model(str(tmp_path / "inference"))
        arrays = jobs.batch(0)
        (out,) = fluid.Executor().run(
            program, feed={name: arrays[name] for name in feeds}, fetch_list=targets
        )
    assert (feeds, out.shape) == (["x", "a", "b"], (jobs.BATCH, 1))


def a_fleet() -> FleetTranspiler:
    """Worker 0 of two, which has not met the others yet."""
    job = FleetTranspiler()
    job.init(role_maker.UserDefinedRoleMaker(0, role_maker.Role.WORKER, 2, ["127.0.0.1:6174"]))
    return job


def test_what_a_script_gives_minimize_is_checked() -> None:
    job, net = a_fleet(), jobs.build(False)
    optimizer = job.distributed_optimizer(fluid.optimizer.SGD(0.1))
    with pytest.raises(ConfigError, match="loss is a list of 2; a job trains one"):
        optimizer.minimize([net.loss, net.out])
    with pytest.raises(ConfigError, match="scopes is not the global scope"):
        optimizer.minimize(net.loss, Scope())
    with pytest.raises(ConfigError, match="use minimize"):
        _ = optimizer.backward
    config = DistributeTranspilerConfig()
    config.mode = "nccl2"
    with pytest.raises(ConfigError, match="mode is 'nccl2', which has no servers; use .*collective"):
        job.distributed_optimizer(fluid.optimizer.SGD(0.1), config)
    with pytest.raises(ConfigError, match="the strategy is a dict; use StrategyFactory"):
        job.distributed_optimizer(fluid.optimizer.SGD(0.1), {})  # type: ignore[arg-type]


def test_without_a_strategy_training_is_asynchronous_and_print_log_prints_the_placement(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job, net = a_fleet(), jobs.build(False)
    optimizer = job.distributed_optimizer(fluid.optimizer.SGD(0.1))
    optimizer._strategy.get_program_config().print_log = True
    optimizer.minimize(net.loss)
    servers = job._fleet._servers
    assert servers is not None
    assert servers.plan is not None
    assert servers.plan.mode == "async"
    assert "transpiler: fc_0.w_0 [4, 8] (32 elements) -> 127.0.0.1:6174" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="init_server has no argument 'mode'"):
        job.init_server(mode=0)
    with pytest.raises(ConfigError, match="export_for_deployment=False"):
        job.save_inference_model(fluid.Executor(), "m", [], [], export_for_deployment=False)

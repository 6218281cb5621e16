"""fleet with parameter servers: scripts of two workers and a server or two, in every mode."""

# SPDX-License-Identifier: Apache-2.0
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import argosy as paddle
from argosy.distributed import fleet
from argosy.distributed.fleet import metrics
from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.program import default_main_program, default_startup_program
from tests import fleet_jobs as jobs
from tests.ranks import ForkServer


def refused(call: Callable[[], Any], message: str) -> None:
    """The call raises an error that says this."""
    with pytest.raises(ConfigError, match=re.escape(message)):
        call()


def trains() -> None:
    """A worker trains some steps and notes its parameters; a server serves."""
    given = jobs.case()
    workers, steps = given["workers"], given.get("steps", 6)
    rank = jobs.take_role(workers)
    fleet.init(fleet.PaddleCloudRoleMaker())
    # Each process draws values of its own: those of worker 0 must be everybody's.
    net = jobs.build(given.get("table", False), jobs.SEED + rank)
    optimizer = jobs.OPTIMIZERS[given.get("optimizer", "sgd")]()
    fleet.distributed_optimizer(optimizer, jobs.strategy_of(given)).minimize(net.loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    exe = paddle.static.Executor()
    for call in given.get("order", ["startup", "init_worker"]):
        exe.run(default_startup_program()) if call == "startup" else fleet.init_worker()
    before = jobs.loss_of(exe, net, steps)
    fleet.barrier_worker()
    for step in range(steps):
        exe.run(feed=jobs.fed(net, jobs.batch(step, rank, workers)), fetch_list=[net.loss])
    actual = jobs.parameters(default_main_program())
    fleet.barrier_worker()
    after = jobs.loss_of(exe, net, steps)
    if given.get("table"):
        actual["table"] = jobs.table_rows()
    fleet.stop_worker()
    np.savez(f"{given['folder']}/{rank}.npz", before=before, after=after, **actual)


def assert_equal(actual: jobs.Arrays, wanted: jobs.Arrays) -> None:
    assert wanted.keys() <= actual.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(("workers", "servers"), [(2, 2), pytest.param(3, 1, marks=pytest.mark.slow)])
def test_sync_workers_begin_with_worker_0_and_end_where_one_process_ends(
    ranks: ForkServer, tmp_path: Path, workers: int, servers: int
) -> None:
    given = {"a_sync": False, "optimizer": "momentum"}
    fetched, _ = jobs.run(ranks, trains, tmp_path, given, workers, servers, FULL_EXIT="1")
    wanted = jobs.alone(False, "momentum", 6)
    for one in fetched:
        assert_equal(one, wanted)


@pytest.mark.parametrize(
    "order",
    [
        ["startup", "init_worker", "startup"],
        pytest.param(["init_worker", "startup"], marks=pytest.mark.slow),
    ],
)
def test_the_startup_program_may_run_after_init_worker(
    ranks: ForkServer, tmp_path: Path, order: list[str]
) -> None:
    """As in 1.x scripts; it changes nothing then, also where the workers drew other values than worker 0."""
    given = {"a_sync": False, "optimizer": "momentum", "order": order}
    fetched, _ = jobs.run(ranks, trains, tmp_path, given, 2, 1)
    wanted = jobs.alone(False, "momentum", 6)
    for one in fetched:
        assert_equal(one, wanted)


MODES: dict[str, dict[str, Any]] = {
    "async": {"a_sync": True},
    "unset": {},
    "half_async": {"a_sync": True, "configs": {"half_async": True}},
    "geo": {"a_sync": True, "configs": {"k_steps": 2}},
    "geo_1x": {"a_sync": True, "configs": {"k_steps": 2}, "order": ["init_worker", "startup"]},
    "dc_asgd": {"a_sync": True, "configs": {"dc_asgd": True}},
    "merged": {"a_sync": True, "configs": {"max_merge_var_num": 2}},
}


FAST_MODES = ("unset", "geo_1x", "merged")


@pytest.mark.parametrize(
    "mode", [pytest.param(m, marks=[] if m in FAST_MODES else pytest.mark.slow) for m in MODES]
)
def test_a_single_worker_ends_where_one_process_ends_in_every_mode(
    ranks: ForkServer, tmp_path: Path, mode: str
) -> None:
    """Nothing is stale, no other worker changes anything; merged gradients are those of a batch twice as large."""
    fetched, said = jobs.run(ranks, trains, tmp_path, MODES[mode] | {"table": True}, 1, 1)
    wanted = jobs.alone(True, "sgd_twice", 6, joined=2) if mode == "merged" else jobs.alone(True, "sgd", 6)
    assert_equal(fetched[0], wanted)
    assert ("a_sync was not set: training is asynchronous" in said[0]) == (mode == "unset")
    known = {"unset": "async", "merged": "async", "dc_asgd": "async", "geo_1x": "geo"}
    assert f": {known.get(mode, mode)}, 1 trainers, 4 blocks, 1 tables" in said[1]


@pytest.mark.parametrize(
    "mode", ["geo", *(pytest.param(m, marks=pytest.mark.slow) for m in ("async", "half_async", "dc_asgd"))]
)
def test_two_workers_learn_together(ranks: ForkServer, tmp_path: Path, mode: str) -> None:
    given = MODES[mode] | {"table": True, "steps": 24}
    fetched, _ = jobs.run(ranks, trains, tmp_path, given, 2, 2)
    for one in fetched:
        assert one["after"] < 0.6 * one["before"]
    np.testing.assert_array_equal(fetched[0]["table"], fetched[1]["table"])


def goes_wrong() -> None:
    """What is refused, and by whom; none of it disturbs the job that follows."""
    given = jobs.case()
    rank = jobs.take_role(given["workers"])
    for call, name in ((fleet.init_server, "init_server"), (fleet.init_worker, "init_worker")):
        refused(call, f"fleet.{name} before fleet.init")
    endpoints = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
    workers = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
    is_server = rank >= len(workers)
    roles = fleet.UserDefinedRoleMaker(
        current_id=rank - len(workers) * is_server,
        role=fleet.Role.SERVER if is_server else fleet.Role.WORKER,
        worker_endpoints=workers,
        server_endpoints=endpoints,
    )
    fleet.init(roles)
    assert fleet.server_endpoints() == endpoints
    assert (fleet.is_server(), fleet.is_worker()) == (is_server, not is_server)
    net = jobs.build(False)
    wrong = {
        "'k_steps' needs a_sync=True": {"a_sync": False, "configs": {"k_steps": 10}},
        "'half_async' needs a_sync=True": {"a_sync": False, "configs": {"half_async": True}},
        "'dc_asgd' needs asynchronous training": {"a_sync": False, "configs": {"dc_asgd": True}},
    }
    for message, chosen in wrong.items():
        with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
            other = jobs.build(False)
            optimizer = fleet.distributed_optimizer(jobs.OPTIMIZERS["sgd"](), jobs.strategy_of(chosen))
            refused(lambda o=optimizer, n=other: o.minimize(n.loss), message)  # type: ignore[misc]
    refused(fleet.init_server if is_server else fleet.init_worker, "before minimize")
    chosen = {"a_sync": False, "configs": {"send_queue_size": 8}}
    fleet.distributed_optimizer(jobs.OPTIMIZERS["sgd"](), jobs.strategy_of(chosen)).minimize(net.loss)
    if is_server:
        refused(fleet.run_server, "before fleet.init_server")
        refused(fleet.init_worker, "on a server")
        refused(lambda: fleet.init_server("/nowhere"), "no directory '/nowhere'")
        refused(lambda: fleet.init_server(".", ["nothing"]), "'nothing' is not a table on the servers")
        fleet.init_server()
        fleet.run_server()
        return
    exe = paddle.static.Executor()
    refused(fleet.init_server, f"this process is worker {rank} (fleet.is_server() is False)")
    refused(fleet.barrier_worker, "call fleet.init_worker() first")
    exe.run(default_startup_program())
    refused(lambda: fleet.save_persistables(exe, given["folder"]), "before fleet.init_worker")
    fleet.init_worker()
    refused(lambda: fleet.util.barrier("server"), "servers take no part in collectives")
    exe.run(feed=jobs.fed(net, jobs.batch(0, rank, 2)))
    fleet.stop_worker()
    fleet.stop_worker()
    refused(lambda: fleet.save_persistables(exe, given["folder"]), "after fleet.stop_worker")
    trained = jobs.parameters(default_main_program())
    np.savez(f"{given['folder']}/{rank}.npz", **trained)
    exe.run(default_startup_program())
    assert not np.array_equal(jobs.parameters(default_main_program())["fc_0.w_0"], trained["fc_0.w_0"])


def test_calls_at_the_wrong_time_or_place_are_refused(ranks: ForkServer, tmp_path: Path) -> None:
    fetched, said = jobs.run(ranks, goes_wrong, tmp_path, {}, 2, 1)
    assert_equal(fetched[0], jobs.alone(False, "sgd", 1))
    for one in said:
        assert "a_sync_configs: send_queue_size: no effect in Argosy" in one
    assert "fleet.stop_worker: this worker is not connected" in said[0]


def minimized(**chosen: Any) -> fleet.Fleet:
    """Worker 0 of two, which has not met the others yet."""
    roles = fleet.UserDefinedRoleMaker(current_id=0, worker_num=2, server_endpoints=["127.0.0.1:6174"])
    job = fleet.Fleet().init(roles)
    optimizer = job.distributed_optimizer(jobs.OPTIMIZERS["sgd"](), jobs.strategy_of(chosen))
    optimizer.minimize(jobs.build(False).loss)
    return job


def test_a_worker_does_not_serve() -> None:
    job = minimized()
    for call, name in ((job.init_server, "init_server"), (job.run_server, "run_server")):
        refused(
            call, f"fleet.{name}: this process is worker 0 (fleet.is_server() is False); call it on servers"
        )


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ({"k_steps": 4}, "training is geo, synchronizing changes every 4 steps;"),
        ({"half_async": True}, "training is half_async;"),
        ({}, "training is asynchronous;"),
    ],
)
def test_the_mode_of_a_strategy_without_a_sync_is_logged(
    configs: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    minimized(configs=configs)
    assert f"strategy.a_sync was not set: {said}" in caplog.text


def test_settings_of_async_are_reported_under_other_modes(caplog: pytest.LogCaptureFixture) -> None:
    minimized(a_sync=False, configs={"max_merge_var_num": 2, "min_send_grad_num_before_recv": 1})
    assert (
        caplog.text.count("a_sync_configs: max_merge_var_num: no effect in sync mode, only in async mode")
        == 1
    )


@pytest.mark.parametrize("name", ["gradient_merge", "localsgd", "adaptive_localsgd"])
def test_strategies_of_collective_training_are_rejected(name: str) -> None:
    strategy = fleet.DistributedStrategy()
    setattr(strategy, name, True)
    roles = fleet.UserDefinedRoleMaker(current_id=0, worker_num=2, server_endpoints=["127.0.0.1:6174"])
    job = fleet.Fleet().init(roles)
    optimizer = job.distributed_optimizer(jobs.OPTIMIZERS["sgd"](), strategy)
    loss = jobs.build(False).loss
    refused(lambda: optimizer.minimize(loss), f"strategy.{name} is for collective training")


def test_half_async_and_geo_exclude_each_other() -> None:
    refused(
        lambda: minimized(a_sync=True, configs={"k_steps": 2, "half_async": True}),
        "'half_async' with k_steps=2: these are different modes; set only one of them",
    )


def collectives_over_servers() -> None:
    """Collectives of the workers, through the servers."""
    given = jobs.case()
    workers = given["workers"]
    rank = jobs.take_role(workers)
    fleet.init()
    net = jobs.build(False)
    positive = paddle.nn.functional.sigmoid(net.out)
    label = paddle.static.data("label", [None, 1], "int64")
    _, _, (*_, hits, misses) = paddle.static.auc(positive, label)
    fleet.distributed_optimizer(jobs.OPTIMIZERS["sgd"](), jobs.strategy_of({})).minimize(net.loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    exe = paddle.static.Executor()
    exe.run(default_startup_program())
    fleet.init_worker()
    util = fleet.util
    assert util.all_reduce(np.array([rank, 2]), "sum").tolist() == [3, 6]
    assert util.all_reduce(rank + 0.5, "max") == 2.5
    assert util.all_gather({"rank": rank}) == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
    assert [a.shape for a in util.all_gather(np.zeros(rank))] == [(0,), (1,), (2,)]
    assert util.get_file_shard(["a", "b", "c", "d"]) == [["a", "b"], ["c"], ["d"]][rank]
    refused(lambda: util.all_reduce(np.zeros(1 + rank)), "give the same on all ranks")
    util.barrier()
    fleet.barrier_worker()
    feed = jobs.fed(net, jobs.batch(0, rank, workers))
    feed["label"] = (feed["y"] > 0).astype("int64")
    test = default_main_program().clone(for_test=True)
    (scores,) = exe.run(test, feed=feed, fetch_list=[positive])
    whole = metrics.auc(hits, misses)
    fleet.stop_worker()
    np.savez(f"{given['folder']}/{rank}.npz", scores=scores, labels=feed["label"], whole=whole)


def area(scores: Any, labels: Any) -> float:
    """The share of (positive, negative) pairs that are in order."""
    positives, negatives = scores[labels == 1], scores[labels == 0]
    return float((positives[:, None] > negatives[None, :]).mean())


def test_workers_meet_on_the_servers(ranks: ForkServer, tmp_path: Path) -> None:
    fetched, _ = jobs.run(ranks, collectives_over_servers, tmp_path, {}, 3, 2)
    scores, labels = (np.concatenate([one[name] for one in fetched]) for name in ("scores", "labels"))
    for one in fetched:
        assert float(one["whole"]) == pytest.approx(area(scores, labels), abs=2e-3)


def test_without_servers_the_same_script_trains_alone(caplog: pytest.LogCaptureFixture) -> None:
    alone = fleet.Fleet().init()
    assert (alone.is_worker(), alone.is_server(), alone.worker_num()) == (True, False, 1)
    net = jobs.build(True)
    alone.distributed_optimizer(jobs.OPTIMIZERS["sgd"](), jobs.strategy_of({"a_sync": True})).minimize(
        net.loss
    )
    exe = paddle.static.Executor()
    exe.run(default_startup_program())
    for call in (alone.init_server, alone.run_server, alone.init_worker):
        call()
    for step in range(2):
        exe.run(feed=jobs.fed(net, jobs.batch(step)))
    alone.stop_worker()
    assert caplog.text.count("this process was started without servers and trains alone") == 4
    values = jobs.parameters(default_main_program())
    with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()), names.guard():
        assert_equal(values, jobs.alone(True, "sgd", 2))


def test_a_collective_job_has_no_servers() -> None:
    job = fleet.Fleet().init(is_collective=True)
    with pytest.raises(ConfigError, match="fleet.init_server in a collective job, which has no servers"):
        job.init_server()
    with pytest.raises(ConfigError, match="fleet.run_server in a collective job"):
        job.run_server()

"""The transpiler's modes without servers: "nccl2" and "collective" on two ranks."""

# SPDX-License-Identifier: Apache-2.0
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from argosy import fluid
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard
from tests.ranks import Nursery

Arrays = dict[str, np.ndarray[Any, Any]]
STEPS, BATCH, RATE = 3, 8, 0.2


def built() -> Any:
    """A small net that SGD trains, in the default programs; gives its loss."""
    default_main_program().random_seed = default_startup_program().random_seed = 3
    x, y = fluid.data("x", [None, 5]), fluid.data("y", [None, 1])
    out = fluid.layers.fc(fluid.layers.fc(x, 6, act="tanh"), 1)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
    fluid.optimizer.SGD(RATE).minimize(loss)
    return loss


def batch(step: int, part: int = 0, parts: int = 1) -> Arrays:
    rng = np.random.RandomState(step)
    x = rng.randn(BATCH, 5).astype("float32")
    return {"x": x[part::parts], "y": x[part::parts, :1] * 2 + 1}


def parameters() -> Arrays:
    scope = global_scope()
    return {p.name: scope.get(p.name).numpy().copy() for p in default_main_program().all_parameters()}


def transpile(config: dict[str, Any], trainer_id: int, trainers: Any, **more: Any) -> None:
    made = fluid.DistributeTranspilerConfig()
    for name, value in config.items():
        setattr(made, name, value)
    fluid.DistributeTranspiler(made).transpile(trainer_id, trainers=trainers, **more)


def trains() -> None:
    config = json.loads(os.environ["CASE"])
    rank, endpoints = int(os.environ["PADDLE_TRAINER_ID"]), os.environ["PADDLE_TRAINER_ENDPOINTS"]
    loss = built()
    transpile(config, rank, endpoints, current_endpoint=os.environ["PADDLE_CURRENT_ENDPOINT"])
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(default_startup_program())
    for step in range(STEPS):
        exe.run(feed=batch(step, rank, 2), fetch_list=[loss])
    np.savez(f"{os.environ['FOLDER']}/{rank}.npz", **parameters())


def learnt(ranks: Nursery, folder: Path, **config: Any) -> list[Arrays]:
    ranks.check(2, trains, CASE=json.dumps(config), FOLDER=str(folder))
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(2)]


def assert_equal(found: list[Arrays], wanted: Arrays) -> None:
    for one in found:
        for name, value in wanted.items():
            np.testing.assert_allclose(one[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    "config",
    [
        {"mode": "nccl2"},
        {"mode": "nccl2", "nccl_comm_num": 2},
        {"mode": "collective"},
        {"mode": "collective", "collective_mode": "grad_allreduce"},
    ],
)
def test_two_trainers_end_where_one_process_with_the_whole_batch_ends(
    ranks: Nursery, tmp_path: Path, config: dict[str, Any]
) -> None:
    found = learnt(ranks, tmp_path, **config)
    built()
    exe = fluid.Executor()
    exe.run(default_startup_program())
    for step in range(STEPS):
        exe.run(feed=batch(step))
    assert_equal(found, parameters())


def after_a_step(exe: Any, before: Arrays, feed: Arrays) -> Arrays:
    """What one process makes of these parameters."""
    with scope_guard(Scope()):
        exe.run(default_startup_program())
        for name, value in before.items():
            global_scope().get(name).numpy()[...] = value
        exe.run(feed=feed)
        return parameters()


def test_local_sgd_takes_the_mean_of_the_parameters_after_each_step(ranks: Nursery, tmp_path: Path) -> None:
    found = learnt(ranks, tmp_path, mode="collective", collective_mode="local_sgd")
    built()
    exe = fluid.Executor()
    exe.run(default_startup_program())
    wanted = parameters()
    for step in range(STEPS):
        own = [after_a_step(exe, wanted, batch(step, part, 2)) for part in range(2)]
        wanted = {name: (own[0][name] + own[1][name]) / 2 for name in wanted}
    assert_equal(found, wanted)


TWO = "127.0.0.1:6174,127.0.0.1:6175"


@pytest.mark.parametrize(
    ("mode", "trainer_id", "trainers", "endpoint", "message"),
    [
        ("nccl2", 0, 2, "127.0.0.1:6174", "trainers is 2; in mode 'nccl2' list all trainers"),
        ("collective", 0, 2, "127.0.0.1:6174", "trainers is 2; in mode 'collective' list all trainers"),
        ("nccl2", -1, TWO, "127.0.0.1:6174", "trainer_id is -1; use 0 to 1"),
        ("nccl2", 2, TWO, "127.0.0.1:6174", "trainer_id is 2; use 0 to 1"),
        ("collective", 0, "127.0.0.1:6174", "127.0.0.1:6174", "'collective' wants two trainers or more"),
        ("nccl2", 0, TWO, "127.0.0.1:6176", "'127.0.0.1:6176' is not among the trainers"),
        ("nccl2", 0, "127.0.0.1:6174,here", "127.0.0.1:6174", "is no endpoint"),
    ],
)
def test_what_makes_no_sense_is_refused(
    mode: str, trainer_id: int, trainers: Any, endpoint: str, message: str
) -> None:
    built()
    with pytest.raises(ConfigError, match=message):
        transpile({"mode": mode}, trainer_id, trainers, current_endpoint=endpoint)


def test_a_program_without_updates_and_questions_about_servers_are_refused() -> None:
    with pytest.raises(ConfigError, match="has no updates; call optimizer.minimize"):
        transpile({"mode": "nccl2"}, 0, TWO, program=Program("empty"))
    config = fluid.DistributeTranspilerConfig()
    config.mode = "nccl2"
    t = fluid.DistributeTranspiler(config)
    for ask in (t.get_trainer_program, lambda: t.get_pserver_program("127.0.0.1:6174")):
        with pytest.raises(ConfigError, match="mode 'nccl2' has no servers; run the program"):
            ask()

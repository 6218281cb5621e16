"""Saving in collective jobs: rank 0 alone may save what it has; what other ranks have, all ranks save together."""

# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

import argosy as paddle
from argosy.distributed import fleet
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime import atomic_files
from argosy.engine.runtime.scope import global_scope
from argosy.static import BuildStrategy
from argosy.static.io import VARS_FILE
from tests.ranks import ForkServer

BATCH = np.random.RandomState(0).randn(4, 4).astype("float32")


def started(reduces: bool = False) -> tuple[Any, Any]:
    """A small net that Momentum trains, after its first step; gives the executor and the output."""
    strategy = fleet.DistributedStrategy()
    if reduces:
        strategy.build_strategy.reduce_strategy = BuildStrategy.ReduceStrategy.Reduce
    fleet.init(is_collective=True, strategy=strategy)
    out = paddle.static.nn.fc(paddle.static.data("x", [None, 4]), 3)
    fleet.distributed_optimizer(paddle.optimizer.Momentum(0.1, 0.9)).minimize((out * out).mean())
    exe = paddle.static.Executor()
    exe.run(default_startup_program())
    exe.run(feed={"x": BATCH})
    return exe, out


def save_everything(exe: Any, out: Any, folder: str) -> None:
    fleet.save_persistables(exe, f"{folder}/fleet")
    fleet.save_inference_model(exe, f"{folder}/model", ["x"], [out])
    if fleet.is_first_worker():
        paddle.fluid.io.save_persistables(exe, f"{folder}/fluid")
        paddle.static.save(default_main_program(), f"{folder}/static")


def rank_0_saves() -> None:
    """What rank 0 saves by itself, and what all save together, all read after a barrier of their own."""
    exe, out = started()
    folder = os.environ["FOLDER"]
    values = {name: global_scope().get(name).clone() for name in default_main_program().persistables()}
    if fleet.worker_index() == 0:
        save_everything(exe, out, f"{folder}/one")
    save_everything(exe, out, f"{folder}/all")
    exe.run(feed={"x": BATCH})  # no rank waits for the save
    fleet.barrier_worker()
    for saved in (f"{folder}/one", f"{folder}/all"):
        for kind in ("fleet", "fluid"):
            actual, _ = atomic_files.read_tensors(Path(saved, kind, VARS_FILE))
            assert actual.keys() == values.keys()
            assert all(torch.equal(actual[name], value) for name, value in values.items())
        _, feeds, _ = paddle.fluid.io.load_inference_model(f"{saved}/model", exe)
        assert feeds == ["x"]
        paddle.static.load(default_main_program(), f"{saved}/static")
        assert all(torch.equal(global_scope().get(name), value) for name, value in values.items())


def test_rank_0_saves_alone_and_the_others_continue(ranks: ForkServer, tmp_path: Path) -> None:
    ranks.check(2, rank_0_saves, FOLDER=str(tmp_path))


def rank_0_saves_what_others_have() -> None:
    exe, _ = started(reduces=True)
    if fleet.worker_index() == 0:
        fleet.save_persistables(exe, os.environ["FOLDER"])
    elif os.environ["CASE"] == "trains":
        exe.run(feed={"x": BATCH})


def test_in_reduce_mode_the_error_says_that_all_ranks_must_save(ranks: ForkServer, tmp_path: Path) -> None:
    first, second = ranks.run(2, rank_0_saves_what_others_have, CASE="ends", FOLDER=str(tmp_path))
    assert (first.code, second.code) == (1, 0), first.said
    assert "CollectiveError: fleet.save_persistables: under ReduceStrategy.Reduce" in first.said
    assert "call it on all ranks" in first.said
    assert list(tmp_path.iterdir()) == [], "nothing is written"


def test_a_rank_that_trains_on_meanwhile_says_so_too(ranks: ForkServer, tmp_path: Path) -> None:
    """Whichever rank finds first that each waits for the other is the cause, and names the call."""
    ends = ranks.run(2, rank_0_saves_what_others_have, CASE="trains", FOLDER=str(tmp_path))
    assert [end.code for end in ends] == [1, 1]
    causes = [end.said for end in ends if "errors.CollectiveError: " in end.said]
    assert causes, "one of them is no consequence"
    for said in causes:
        assert "fleet.save_persistables, which all ranks call under ReduceStrategy.Reduce" in said
    assert list(tmp_path.iterdir()) == [], "nothing is written"


def rank_0_saves_parameters_in_reduce_mode() -> None:
    """SGD has no state that another rank could have, so that rank 0 has everything."""
    strategy = fleet.DistributedStrategy()
    strategy.build_strategy.reduce_strategy = BuildStrategy.ReduceStrategy.Reduce
    fleet.init(is_collective=True, strategy=strategy)
    loss = paddle.static.nn.fc(paddle.static.data("x", [None, 4]), 3).mean()
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.1)).minimize(loss)
    exe = paddle.static.Executor()
    exe.run(default_startup_program())
    if fleet.worker_index() == 0:
        fleet.save_persistables(exe, os.environ["FOLDER"])
    exe.run(feed={"x": BATCH})


def test_in_reduce_mode_without_optimizer_state_rank_0_saves_alone(ranks: ForkServer, tmp_path: Path) -> None:
    ranks.check(2, rank_0_saves_parameters_in_reduce_mode, FOLDER=str(tmp_path))
    assert (tmp_path / VARS_FILE).is_file()

"""Ranks with different programs raise before the first step, with the rank and the first difference."""

# SPDX-License-Identifier: Apache-2.0
import os

import numpy as np
import pytest

import argosy as paddle
from argosy.distributed import fleet
from argosy.engine import collective, kernels
from argosy.engine.collective.world import _first_difference
from argosy.engine.errors import ScheduleError
from tests.ranks import ForkServer


def train(width: int, batch: int = 4, strategy: fleet.DistributedStrategy | None = None) -> None:
    """One step of a perceptron with so many hidden units."""
    x = paddle.static.data("x", [None, 8])
    loss = paddle.mean(paddle.static.nn.fc(paddle.static.nn.fc(x, width), 2))
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), strategy).minimize(loss)
    exe = paddle.static.Executor()
    exe.run(paddle.static.default_startup_program())
    exe.run(feed={"x": np.ones((batch, 8), "float32")}, fetch_list=[loss])
    print("a step was done")


def another_width() -> None:
    fleet.init(is_collective=True)
    train(16 if fleet.worker_index() == 1 else 32)


def another_batch() -> None:
    fleet.init(is_collective=True)
    train(16, batch=2 + fleet.worker_index())


def one_more_collective() -> None:
    world = collective.connect()
    collective.compare_schedules(world, ["a", "b"])
    lines = ["all_reduce dp w@GRAD", "all_reduce dp b@GRAD"]
    with pytest.raises(ScheduleError) as e:
        collective.compare_schedules(world, lines[: 1 if world.rank == 2 else 2])
    assert str(e.value) == (
        "the ranks have different programs: collective 2 of rank 2 is 'nothing more', and that of rank 0 is "
        "'all_reduce dp b@GRAD'; build the same model with the same arguments and strategy on every rank"
    )
    collective.compare_schedules(world, ["c"])  # and they can continue


def test_different_programs_end_on_every_rank_with_the_first_difference(ranks: ForkServer) -> None:
    for end in ranks.run(2, another_width):
        assert end.code == 1, end.said
        assert "ScheduleError: the ranks have different programs: collective 1 of rank 1 is '" in end.said
        last = end.said.splitlines()[-1]
        assert "rank 0 is '" in last
        assert "[8, 16]" in last
        assert "[8, 32]" in last
        assert "a step was done" not in end.said


def kernels_on_one_rank() -> None:
    fleet.init(is_collective=True)
    if fleet.worker_index() == 1:
        os.environ["ARGOSY_KERNELS"] = "0"
    strategy = fleet.DistributedStrategy()
    if "UNFUSED" in os.environ:
        strategy.build_strategy.fuse_all_optimizer_ops = False
    train(16, strategy=strategy)


def test_kernels_on_some_ranks_only_are_reported(ranks: ForkServer) -> None:
    if why := kernels.unavailable():
        pytest.skip(why)
    for end in ranks.run(2, kernels_on_one_rank):
        assert end.code == 1, end.said
        assert "kernels are unavailable on rank 1 (ARGOSY_KERNELS=0), but available on rank 0" in end.said
        assert "a step was done" not in end.said
    assert all("a step was done" in said for said in ranks.check(2, kernels_on_one_rank, UNFUSED="1"))


def test_batches_may_differ(ranks: ForkServer) -> None:
    assert all("a step was done" in said for said in ranks.check(2, another_batch))


def test_a_missing_collective_is_reported(ranks: ForkServer) -> None:
    ranks.check(3, one_more_collective)


def test_the_minority_is_the_one_that_differs() -> None:
    message = _first_difference([["a", "x"], ["a", "b"], ["a", "x"], ["a", "b"], ["a", "b"]])
    assert "collective 2 of rank 0 (and 1 more ranks) is 'x', and that of rank 1 is 'b'" in message

"""strategy.localsgd and adaptive_localsgd on two ranks, compared with two models of plain torch that are averaged."""

# SPDX-License-Identifier: Apache-2.0
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import argosy as paddle
from argosy.distributed import fleet
from argosy.distributed.fleet.strategy_checks import check_collective
from argosy.engine.collective import world
from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.runtime.scope import Scope, scope_guard
from tests.ranks import ForkServer

Arrays = dict[str, np.ndarray[Any, Any]]
STEPS, RATES = 12, [0.05] * 6 + [0.01] * 6
FIXED: tuple[tuple[dict[str, Any], dict[str, int]], ...] = (
    ({}, {"k_steps": 3, "begin_step": 2}),
    ({"sync_nccl_allreduce": False, "nccl_comm_num": 2}, {"k_steps": 4, "begin_step": 0}),
    ({"fuse_all_reduce_ops": False}, {"k_steps": 2}),
)
ADAPTIVE = ({"init_k_steps": 4, "begin_step": 1}, {"init_k_steps": 3, "begin_step": 0})


def batch(step: int, rank: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng((step, rank))
    return rng.standard_normal((4, 5)).astype("float32"), rng.standard_normal((4, 1)).astype("float32")


class Job:
    """A small net that this rank trains, in its own scope."""

    def __init__(self, name: str, configs: dict[str, int], switches: dict[str, Any]) -> None:
        strategy = fleet.DistributedStrategy()
        setattr(strategy, name, True)
        setattr(strategy, f"{name}_configs", configs)
        for switch, value in switches.items():
            setattr(strategy, switch, value)
        self.main, self.startup, self.scope = Program("main"), Program("startup"), Scope()
        self.scheduler = paddle.optimizer.lr.PiecewiseDecay([6], [0.05, 0.01])
        self.startup.random_seed = 3
        with program_guard(self.main, self.startup), names.guard():
            x, y = paddle.static.data("x", [None, 5]), paddle.static.data("y", [None, 1])
            out = paddle.static.nn.fc(paddle.nn.functional.tanh(paddle.static.nn.fc(x, 6)), 1)
            self.loss = paddle.mean(paddle.nn.functional.square_error_cost(out, y))
            optimizer = paddle.optimizer.Momentum(self.scheduler, 0.9)
            fleet.distributed_optimizer(optimizer, strategy).minimize(self.loss)
        self.exe = paddle.static.Executor()
        self.exe.run(self.startup, scope=self.scope)
        self.first = self.values()
        self.averaged: list[int] = []
        """The steps, from 1, in which the ranks communicated."""

    def values(self) -> Arrays:
        return {p.name: self.scope.get(p.name).numpy().copy() for p in self.main.all_parameters()}

    def run(self, steps: range) -> Arrays:
        for step in steps:
            before = world().num_started()
            x, y = batch(step, fleet.worker_index())
            fetches = [self.loss, "fc_0.w_0"]  # a parameter, too: it is not always written by the last node
            self.exe.run(self.main, feed={"x": x, "y": y}, fetch_list=fetches, scope=self.scope)
            self.scheduler.step()
            if world().num_started() > before:
                self.averaged.append(step + 1)
        return self.values()


class Model:
    """One rank's model in plain torch."""

    def __init__(self, first: Arrays) -> None:
        self.parameters = [torch.tensor(value, requires_grad=True) for value in first.values()]
        self.velocities = [torch.zeros_like(p) for p in self.parameters]

    def step(self, step: int, rank: int) -> float:
        w0, b0, w1, b1 = self.parameters
        x, y = map(torch.from_numpy, batch(step, rank))
        loss = ((torch.tanh(x @ w0 + b0) @ w1 + b1 - y) ** 2).mean()
        gradients = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            for p, v, g in zip(self.parameters, self.velocities, gradients, strict=True):
                v.mul_(0.9).add_(g)
                p.sub_(RATES[step] * v)
        return loss.item()


def by_torch(first: Arrays, k: int, begin: int, steps: int, adapts: bool) -> tuple[list[Arrays], list[int]]:
    """The parameters of both ranks after so many steps, and the steps, from 1, after which they were averaged."""
    models, averaged, last, init_k = [Model(first), Model(first)], [], begin, k
    loss_0 = 0.0
    for step in range(1, steps + 1):
        loss = sum(model.step(step - 1, rank) for rank, model in enumerate(models)) / 2
        loss_0 = loss_0 or loss
        if step > begin and step - last < k:
            continue
        averaged.append(step)
        last = step
        with torch.no_grad():
            for a, b in zip(models[0].parameters, models[1].parameters, strict=True):
                mean = (a + b) / 2
                a.copy_(mean)
                b.copy_(mean)
        if adapts and step > begin:
            k = min(16, max(1, math.ceil(math.sqrt(RATES[0] * loss / (RATES[step - 1] * loss_0) * init_k))))
    named = [dict(zip(first, (p.detach().numpy() for p in m.parameters), strict=True)) for m in models]
    return named, averaged


def average_sometimes() -> None:
    fleet.init(is_collective=True)
    rank = fleet.worker_index()
    for switches, configs in FIXED:
        job = Job("localsgd", configs, switches)
        trained = job.run(range(STEPS))
        expected, averaged = by_torch(
            job.first, configs["k_steps"], configs.get("begin_step", 1), STEPS, adapts=False
        )
        assert job.averaged == averaged, f"{configs} {switches}"
        assert_close(trained, expected[rank], f"{configs} {switches}")
    for configs in ADAPTIVE:
        job = Job("adaptive_localsgd", configs, {})
        trained = job.run(range(STEPS))
        expected, averaged = by_torch(
            job.first, configs["init_k_steps"], configs["begin_step"], STEPS, adapts=True
        )
        assert job.averaged == sorted({1, *averaged}), f"{configs}: the loss of step 1 is averaged, too"
        assert_close(trained, expected[rank], str(configs))
    resumes_between_averages(Path(os.environ["FOLDER"]))


def resumes_between_averages(folder: Path) -> None:
    """Each rank saves its own parameters and optimizer state."""
    job = Job("localsgd", {"k_steps": 4, "begin_step": 0}, {})
    job.run(range(6))
    fleet.Checkpoint(folder).save(6, job.exe, job.main, scope=job.scope)
    resumed = Job("localsgd", {"k_steps": 4, "begin_step": 0}, {})
    fleet.Checkpoint(folder).restore(resumed.exe, resumed.main, resumed.scope)
    trained = resumed.run(range(6, 10))
    assert resumed.averaged == [8]
    assert_close(trained, by_torch(job.first, 4, 0, 10, adapts=False)[0][fleet.worker_index()], "resumed")


def assert_close(actual: Arrays, expected: Arrays, what: str) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-6, err_msg=f"{name} {what}")


def test_ranks_train_alone_and_average_when_due(ranks: ForkServer, tmp_path: Path) -> None:
    ranks.check(2, average_sometimes, FOLDER=str(tmp_path))


@pytest.mark.parametrize("name", ["localsgd", "adaptive_localsgd"])
def test_what_sums_gradients_is_rejected(name: str) -> None:
    strategy = fleet.DistributedStrategy()
    setattr(strategy, name, True)
    strategy.build_strategy.reduce_strategy = paddle.static.BuildStrategy.ReduceStrategy.Reduce
    with pytest.raises(ConfigError, match=rf"strategy.{name} and build_strategy.reduce_strategy = Reduce"):
        check_collective(strategy, num_ranks=2, num_hosts=1)
    strategy.build_strategy.reduce_strategy = paddle.static.BuildStrategy.ReduceStrategy.AllReduce
    strategy.fp16_allreduce = True
    with pytest.raises(ConfigError, match=rf"strategy.{name} and strategy.fp16_allreduce are both on"):
        check_collective(strategy, num_ranks=2, num_hosts=1)


def test_one_rank_has_nothing_to_average(caplog: pytest.LogCaptureFixture) -> None:
    fleet.init(is_collective=True)
    with scope_guard(Scope()):
        job = Job("localsgd", {"k_steps": 3}, {})
        job.run(range(3))
    assert "localsgd is not used" in caplog.text
    assert not job.main.training.periods

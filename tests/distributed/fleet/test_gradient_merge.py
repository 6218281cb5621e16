"""strategy.gradient_merge on two ranks: communication every k-th step, and the results of plain torch."""

# SPDX-License-Identifier: Apache-2.0
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
K, STEPS, RATE = 2, 5, 0.1
REDUCE = paddle.static.BuildStrategy.ReduceStrategy.Reduce
EXACT: tuple[dict[str, Any], ...] = (
    {},
    {"gradient_merge_configs": {"k_steps": K, "avg": False}},
    {"sync_nccl_allreduce": False, "nccl_comm_num": 2, "fuse_grad_size_in_MB": 0},
    {"fuse_all_reduce_ops": False},
    {"build_strategy.reduce_strategy": REDUCE},
    {"build_strategy.reduce_strategy": REDUCE, "build_strategy.fuse_broadcast_ops": True},
    {"build_strategy.fuse_all_optimizer_ops": True},
)
ROUNDED: tuple[dict[str, Any], ...] = (
    {"fp16_allreduce": True},
    {"amp": True},
    {"amp": True, "amp_configs": {"dtype": "float16"}},
)
FAST = (EXACT[1], EXACT[2], EXACT[5], ROUNDED[2])


def batch(step: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(step)
    return rng.standard_normal((8, 5)).astype("float32"), rng.standard_normal((8, 1)).astype("float32")


class Job:
    """A small net that this rank trains with a half of each batch, in its own scope."""

    def __init__(self, switches: dict[str, Any]) -> None:
        strategy = fleet.DistributedStrategy()
        strategy.gradient_merge, strategy.gradient_merge_configs = True, {"k_steps": K}
        for name, value in switches.items():
            inner = name.removeprefix("build_strategy.")
            setattr(strategy if inner == name else strategy.build_strategy, inner, value)
        self.main, self.startup, self.scope = Program("main"), Program("startup"), Scope()
        self.startup.random_seed = 3
        with program_guard(self.main, self.startup), names.guard():
            x, y = paddle.static.data("x", [None, 5]), paddle.static.data("y", [None, 1])
            out = paddle.static.nn.fc(paddle.nn.functional.tanh(paddle.static.nn.fc(x, 6)), 1)
            self.loss = paddle.mean(paddle.nn.functional.square_error_cost(out, y))
            optimizer = paddle.optimizer.Momentum(RATE, 0.9, weight_decay=0.01)
            fleet.distributed_optimizer(optimizer, strategy).minimize(self.loss)
        self.exe = paddle.static.Executor()
        self.exe.run(self.startup, scope=self.scope)
        self.first = self.values()

    def values(self) -> Arrays:
        return {p.name: self.scope.get(p.name).numpy().copy() for p in self.main.all_parameters()}

    def run(self, step: int, factor: float = 1.0) -> None:
        """One step; checks that the ranks communicate in every k-th only."""
        rank, before = fleet.worker_index(), world().num_started()
        x, y = (factor * value[4 * rank : 4 * rank + 4] for value in batch(step))
        self.exe.run(self.main, feed={"x": x, "y": y}, fetch_list=[self.loss], scope=self.scope)
        assert (world().num_started() > before) == ((step + 1) % K == 0), f"step {step}"


def by_torch(first: Arrays, steps: int, avg: bool) -> Arrays:
    """The same training in plain torch, with the whole batches."""
    w0, b0, w1, b1 = parameters = [torch.tensor(value, requires_grad=True) for value in first.values()]
    velocities = [torch.zeros_like(p) for p in parameters]
    for last in range(K - 1, steps, K):
        totals = [torch.zeros_like(p) for p in parameters]
        for step in range(last - K + 1, last + 1):
            x, y = map(torch.from_numpy, batch(step))
            loss = ((torch.tanh(x @ w0 + b0) @ w1 + b1 - y) ** 2).mean()
            for total, gradient in zip(totals, torch.autograd.grad(loss, parameters), strict=True):
                total.add_(gradient)
        with torch.no_grad():
            for p, total, v in zip(parameters, totals, velocities, strict=True):
                v.mul_(0.9).add_((total / K if avg else total) + 0.01 * p)
                p.sub_(RATE * v)
    return {name: p.detach().numpy() for name, p in zip(first, parameters, strict=True)}


def train_halves() -> None:
    """On a rank; a checkpoint resumes in the middle of a period."""
    fleet.init(is_collective=True)
    train(*FAST)
    one_rank_overflows()
    resumes_in_a_period(Path(os.environ["FOLDER"]))


def train_halves_of_other_cases() -> None:
    """On a rank."""
    fleet.init(is_collective=True)
    train(*(switches for switches in (*EXACT, *ROUNDED) if switches not in FAST))
    look_ahead_keeps_the_ranks_equal()


def train(*cases: dict[str, Any]) -> None:
    """Each case trains as plain torch."""
    for switches in cases:
        job = Job(switches)
        for step in range(STEPS):
            job.run(step)
        configs = switches.get("gradient_merge_configs", {"avg": True})
        tolerance = {"rtol": 1e-4, "atol": 1e-6} if switches in EXACT else {"rtol": 0.05, "atol": 5e-3}
        for name, value in by_torch(job.first, STEPS, configs["avg"]).items():
            np.testing.assert_allclose(job.values()[name], value, **tolerance, err_msg=f"{name} {switches}")


def one_rank_overflows() -> None:
    configs = {"dtype": "float16", "decr_every_n_nan_or_inf": 1, "decr_ratio": 0.5}
    job = Job({"amp": True, "amp_configs": configs})
    job.run(0, factor=1e30 if fleet.worker_index() == 1 else 1.0)
    job.run(1)
    assert job.scope.get("loss_scaling_0").item() == 32768 / 2, "both ranks see the overflow of rank 1"
    for name, value in job.first.items():
        np.testing.assert_array_equal(job.values()[name], value)


def look_ahead_keeps_the_ranks_equal() -> None:
    for reduce_strategy in (REDUCE, paddle.static.BuildStrategy.ReduceStrategy.AllReduce):
        strategy, scope = fleet.DistributedStrategy(), Scope()
        strategy.build_strategy.reduce_strategy = reduce_strategy
        main, startup = Program("main"), Program("startup")
        with program_guard(main, startup), names.guard():
            x = paddle.static.data("x", [None, 5])
            loss = paddle.mean(paddle.static.nn.fc(x, 1, bias_attr=False) ** 2)
            optimizer = paddle.incubate.LookAhead(paddle.optimizer.SGD(RATE), alpha=0.5, k=2)
            fleet.distributed_optimizer(optimizer, strategy).minimize(loss)
        exe = paddle.static.Executor()
        exe.run(startup, scope=scope)
        fast = torch.tensor(scope.get("fc_0.w_0").numpy(), requires_grad=True)
        slow = torch.zeros_like(fast)
        for step in range(5):
            inputs = batch(step)[0]
            part = slice(4 * fleet.worker_index(), 4 * fleet.worker_index() + 4)
            (weight,) = exe.run(main, feed={"x": inputs[part]}, fetch_list=["fc_0.w_0"], scope=scope)
            (gradient,) = torch.autograd.grad(((torch.from_numpy(inputs) @ fast) ** 2).mean(), fast)
            with torch.no_grad():
                fast.sub_(RATE * gradient)
                slow.copy_(fast if step == 0 else slow)
                if step % 2:
                    fast.copy_(slow.add_(0.5 * (fast - slow)))
            np.testing.assert_allclose(weight, fast.detach().numpy(), rtol=1e-4, atol=1e-6)


def resumes_in_a_period(folder: Path) -> None:
    job = Job({})
    for step in range(3):
        job.run(step)
    fleet.Checkpoint(folder).save(3, job.exe, job.main, scope=job.scope)
    with scope_guard(job.scope):
        fleet.save_persistables(job.exe, str(folder / "saved"), job.main)  # warns
    resumed = Job({})
    fleet.Checkpoint(folder).restore(resumed.exe, resumed.main, resumed.scope)
    resumed.run(3)
    for name, value in by_torch(job.first, 4, avg=True).items():
        np.testing.assert_allclose(resumed.values()[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_two_ranks_train_as_torch_with_whole_batches(ranks: ForkServer, tmp_path: Path) -> None:
    errors = ranks.run(2, train_halves, FOLDER=str(tmp_path))
    assert [ended.code for ended in errors] == [0, 0], errors
    assert all(
        "save_persistables: the ranks differ between the steps in which gradient_merge" in e.said
        for e in errors
    )


@pytest.mark.slow
def test_two_ranks_do_with_other_switches_and_look_ahead(ranks: ForkServer) -> None:
    ranks.check(2, train_halves_of_other_cases)


@pytest.mark.parametrize("other", ["localsgd", "adaptive_localsgd"])
def test_strategies_that_control_when_ranks_communicate_exclude_each_other(other: str) -> None:
    strategy = fleet.DistributedStrategy()
    strategy.gradient_merge = True
    setattr(strategy, other, True)
    with pytest.raises(ConfigError, match=rf"strategy.{other} and strategy.gradient_merge are both on"):
        check_collective(strategy, num_ranks=2, num_hosts=1)


def test_fleet_takes_optimizers_that_it_can_distribute() -> None:
    fleet.init(is_collective=True)
    inner = paddle.optimizer.SGD(RATE)
    merging = paddle.incubate.optimizer.GradientMergeOptimizer(inner, K)
    with pytest.raises(ConfigError, match=r"given a GradientMergeOptimizer; set strategy.gradient_merge"):
        fleet.distributed_optimizer(merging)  # type: ignore[arg-type]
    strategy = fleet.DistributedStrategy()
    strategy.gradient_merge = True
    optimizer = fleet.distributed_optimizer(paddle.incubate.LookAhead(inner), strategy)
    loss = paddle.mean(paddle.static.nn.fc(paddle.static.data("x", [None, 3]), 1))
    with pytest.raises(ConfigError, match=r"strategy.gradient_merge and the optimizer LookAhead"):
        optimizer.minimize(loss)


def test_the_state_of_fleets_optimizer_includes_the_accumulators() -> None:
    fleet.init(is_collective=True)
    strategy = fleet.DistributedStrategy()
    strategy.gradient_merge, strategy.gradient_merge_configs = True, {"k_steps": 3}
    loss = paddle.mean(paddle.static.nn.fc(paddle.static.data("x", [None, 3]), 1, bias_attr=False))
    optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(RATE), strategy)
    optimizer.minimize(loss)
    exe = paddle.static.Executor()
    exe.run(paddle.static.default_startup_program())
    exe.run(feed={"x": np.ones((2, 3), "float32")})
    state = fleet.state_dict()
    assert state["gradient_merge_step"].item() == 1
    assert state["fc_0.w_0@GRAD@GradientMerge"].flatten().tolist() == [1.0, 1.0, 1.0]
    exe.run(feed={"x": np.ones((2, 3), "float32")})
    fleet.set_state_dict(state)
    assert paddle.static.global_scope().get("gradient_merge_step").item() == 1

"""strategy.dgc: two ranks train as a simulation of the paper's algorithm in plain torch, and resume to equal bits."""

# SPDX-License-Identifier: Apache-2.0
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import argosy as paddle
from argosy import fluid
from argosy.distributed import fleet
from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.ir.serialize import from_dict, to_dict
from argosy.engine.runtime.scope import Scope, scope_guard
from tests.ranks import ForkServer

RANKS, STEPS, SAVED, RATE, MU = 2, 8, 5, 0.05, 0.9
RAMPUP = {"rampup_begin_step": 2, "rampup_step": 4, "sparsity": [0.75, 0.99]}
Arrays = dict[str, np.ndarray[Any, Any]]
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "from the first step": {"rampup_begin_step": 0, "sparsity": [0.999], "rampup_step": 1},
    "nesterov and decay": {"nesterov": True, "l2": 0.01},
    "clipped": {"clip": 0.05, "l2": 0.01},
    "overlap": {"switches": {"sync_nccl_allreduce": False, "nccl_comm_num": 2, "fuse_grad_size_in_MB": 0}},
    "unfused": {"switches": {"fuse_all_reduce_ops": False}, "build": {"fuse_all_optimizer_ops": True}},
}


def batch(step: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(step)
    return torch.randn(8, 8, 8, 8, generator=draw), torch.randint(0, 4, (8, 1), generator=draw)


# --- the paper's algorithm, without Argosy ------------------------------------------------------------


def gradients(values: dict[str, Tensor], x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Of the net that `Job` builds, on a part of a batch; the loss is divided by the number of ranks."""
    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    hidden = F.relu(F.conv2d(x, leaves["conv2d_0.w_0"], leaves["conv2d_0.b_0"]))
    hidden = F.relu(hidden.flatten(1) @ leaves["fc_0.w_0"] + leaves["fc_0.b_0"])
    loss = F.cross_entropy(hidden @ leaves["fc_1.w_0"] + leaves["fc_1.b_0"], y.squeeze(1)) / RANKS
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


def simulated(values: dict[str, Tensor], case: dict[str, Any]) -> dict[str, Tensor]:
    """The parameters after all steps: algorithm 4 of Lin et al. with momentum before the ramp-up."""
    ramp = RAMPUP | {key: case[key] for key in RAMPUP if key in case}
    nesterov, l2, clip = (case.get(key, 0) for key in ("nesterov", "l2", "clip"))
    total = {name: torch.zeros_like(value) for name, value in values.items()}
    velocity = [dict(total) for _ in range(RANKS)]
    residual = [{name: torch.zeros_like(value) for name, value in values.items()} for _ in range(RANKS)]
    for step in range(STEPS):
        x, y = batch(step)
        local = [gradients(values, x[4 * r : 4 * r + 4], y[4 * r : 4 * r + 4]) for r in range(RANKS)]
        since = step - ramp["rampup_begin_step"]
        for name, value in values.items():
            if since < 0 or value.numel() < 16384:
                change = limited(local[0][name] + local[1][name], clip) + l2 * value
                total[name] = MU * total[name] + change
                step_of = change + MU * total[name] if nesterov else total[name]
                values[name] = value - RATE * step_of
                continue
            levels = ramp["sparsity"]
            level = levels[min(int(since * len(levels) / ramp["rampup_step"]), len(levels) - 1)]
            sent = torch.zeros_like(value)
            for rank in range(RANKS):
                g = limited(local[rank][name], clip / math.sqrt(RANKS)) + l2 * value / RANKS
                if since == 0:
                    velocity[rank][name] = total[name] / RANKS
                u = MU * velocity[rank][name] + g
                v = residual[rank][name] + (g + MU * u if nesterov else u)
                count = round(value.numel() * (1 - level))
                threshold = v.abs().flatten().sort(descending=True).values[count - 1]
                mask = v.abs() >= threshold
                assert int(mask.sum()) == count
                sent += v * mask
                velocity[rank][name], residual[rank][name] = u * ~mask, v * ~mask
            values[name] = value - RATE * sent
    return values


def limited(g: Tensor, norm: float) -> Tensor:
    return g * min(1.0, norm / g.norm().item()) if norm else g


# --- Argosy -------------------------------------------------------------------------------------------


class Job:
    """A small net on this rank, whose convolution and first fc are compressed."""

    def __init__(self, case: dict[str, Any], optimizer: Callable[[], Any] | None = None) -> None:
        strategy = fleet.DistributedStrategy()
        if optimizer is None:
            strategy.dgc = True
            strategy.dgc_configs = RAMPUP | {key: case[key] for key in RAMPUP if key in case}
        for name, value in case.get("switches", {}).items():
            setattr(strategy, name, value)
        for name, value in case.get("build", {}).items():
            setattr(strategy.build_strategy, name, value)
        self.main, self.startup, self.scope = Program("main"), Program("startup"), Scope()
        with program_guard(self.main, self.startup), names.guard(), scope_guard(self.scope):
            torch.manual_seed(0)
            x = paddle.static.data("x", [None, 8, 8, 8], "float32")
            y = paddle.static.data("y", [None, 1], "int64")
            hidden = paddle.static.nn.conv2d(x, 256, 3, act="relu")
            hidden = paddle.static.nn.fc(hidden, 8, activation="relu")
            self.loss = F.cross_entropy(paddle.static.nn.fc(hidden, 4), y.squeeze(1))
            clip = paddle.nn.ClipGradByNorm(case["clip"]) if "clip" in case else None
            settings = {
                "use_nesterov": case.get("nesterov", False),
                "weight_decay": case.get("l2"),
                "grad_clip": clip,
            }
            inner = optimizer() if optimizer else paddle.optimizer.Momentum(RATE, MU, **settings)
            self.optimizer = fleet.distributed_optimizer(inner, strategy)
            self.optimizer.minimize(self.loss)
            self.exe = paddle.static.Executor()
            self.exe.run(self.startup)

    def values(self, everything: bool = False) -> dict[str, Tensor]:
        wanted = self.main.persistables() if everything else {p.name: p for p in self.main.all_parameters()}
        return {name: self.scope.get(name).clone().contiguous() for name in wanted}

    def train(self, steps: range) -> None:
        part = slice(4 * fleet.worker_index(), 4 * fleet.worker_index() + 4)
        with scope_guard(self.scope):
            for step in steps:
                x, y = batch(step)
                self.exe.run(self.main, feed={"x": x[part], "y": y[part]}, fetch_list=[self.loss])


def train_each_case() -> None:
    """On a rank."""
    fleet.init(is_collective=True)
    plain, from_the_first_step = train({case: CASES[case] for case in ("plain", "from the first step")})
    check_printed(plain)
    check_fetched(from_the_first_step)
    check_saving(plain)
    check_the_optimizer_of_1x(plain)


def train_over_sockets() -> None:
    """On a rank: as between hosts."""
    fleet.init(is_collective=True)
    train({"overlap": CASES["overlap"]})


def train_other_cases() -> None:
    fleet.init(is_collective=True)
    train({case: CASES[case] for case in ("nesterov and decay", "clipped", "overlap", "unfused")})


def train(cases: dict[str, dict[str, Any]]) -> list[Job]:
    """Train each case, and compare it with the simulation and between the ranks. A checkpoint is saved at SAVED."""
    jobs = []
    for what, case in cases.items():
        job = Job(case)
        expected = simulated(job.values(), case)
        job.train(range(SAVED))
        if what == "plain":
            fleet.Checkpoint(os.environ["FOLDER"]).save(SAVED, job.exe, job.main, scope=job.scope)
        job.train(range(SAVED, STEPS))
        jobs.append(job)
        for name, value in job.values().items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-6, err_msg=f"{what}: {name}")
            largest, smallest = (fleet.util.all_reduce(value.numpy(), mode) for mode in ("max", "min"))
            assert np.array_equal(largest, smallest), f"{what}: {name} differs between the ranks"
    return jobs


def check_printed(job: Job) -> None:
    printed = str(job.main)
    assert printed.count("dgc_all_reduce(") == 1
    assert (
        "dgc_momentum([conv2d_0.w_0, fc_0.w_0]" in printed
        or "dgc_momentum([fc_0.w_0, conv2d_0.w_0]" in printed
    )
    assert "all_reduce_fused(" in printed
    assert str(from_dict(to_dict(job.main))) == printed


def check_fetched(job: Job) -> None:
    """A fetched gradient is the sum of what the ranks have sent, and all of the update."""
    before, (x, y) = job.values(), batch(fleet.worker_index())
    with scope_guard(job.scope):
        (gradient,) = job.exe.run(job.main, feed={"x": x, "y": y}, fetch_list=["fc_0.w_0@GRAD"])
    assert 74 <= np.count_nonzero(gradient) <= 2 * 74, "of each rank one of 1000 elements of 73728"
    change = before["fc_0.w_0"] - job.values()["fc_0.w_0"]
    np.testing.assert_allclose(change, RATE * gradient, rtol=1e-3, atol=1e-7)


def check_saving(job: Job) -> None:
    """A resumed training has the same bits as one that went through; one rank cannot save it."""
    other = Job(CASES["plain"])
    assert fleet.Checkpoint(os.environ["FOLDER"]).restore(other.exe, other.main, other.scope).step == SAVED
    other.train(range(SAVED, STEPS))
    after, resumed = job.values(everything=True), other.values(everything=True)
    assert any("residual" in name and value.abs().sum() > 0 for name, value in after.items())
    for name, value in after.items():
        assert torch.equal(value, resumed[name]), name
    with scope_guard(job.scope):
        for save in (
            lambda: fleet.save_persistables(job.exe, os.environ["FOLDER"], job.main),
            lambda: paddle.static.save(job.main, os.environ["FOLDER"] + "/m"),
            job.optimizer.state_dict,
        ):
            with pytest.raises(ConfigError, match="use fleet.Checkpoint, where every rank saves its own"):
                save()


def check_the_optimizer_of_1x(plain: Job) -> None:
    def optimizer() -> Any:
        return fluid.optimizer.DGCMomentumOptimizer(RATE, MU, 2, 4, [0.75, 0.99], num_trainers=2)

    job = Job({}, optimizer)
    job.train(range(STEPS))
    for name, value in plain.values().items():
        assert torch.equal(value, job.values()[name])
    with pytest.raises(ConfigError, match="num_trainers is 3, but the job has 2 ranks"):
        Job({}, lambda: fluid.optimizer.DGCMomentumOptimizer(RATE, MU, 2, num_trainers=3))
    with pytest.raises(ConfigError, match=r"strategy.fp16_allreduce and strategy.dgc are both on"):
        Job({"switches": {"fp16_allreduce": True}}, optimizer)


def test_two_ranks_train_as_the_paper_says(ranks: ForkServer, tmp_path: Path) -> None:
    ranks.check(2, train_each_case, FOLDER=str(tmp_path), timeout_s=120)


@pytest.mark.slow
def test_they_do_with_other_settings(ranks: ForkServer) -> None:
    ranks.check(2, train_other_cases)


def test_they_do_over_sockets(ranks: ForkServer) -> None:
    ranks.check(2, train_over_sockets, ARGOSY_SHM="0")

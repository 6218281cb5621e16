"""Fused computation together with the switches of communication: two ranks end where they end unfused."""

# SPDX-License-Identifier: Apache-2.0
import json
import os
from typing import Any

import numpy as np
import pytest
import torch

import argosy as paddle
from argosy.distributed import fleet
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.runtime.scope import Scope, scope_guard
from tests.fusing import FUSIONS
from tests.ranks import ForkServer

SWITCHES: tuple[dict[str, Any], ...] = (
    {"sync_nccl_allreduce": False, "nccl_comm_num": 2, "fuse_grad_size_in_MB": 0},
    {"fuse_all_reduce_ops": False, "sync_batch_norm": True},
    {"fp16_allreduce": True},
    {"reduce": True},
)


def net(x: Any) -> Any:
    """A residual block, a depthwise convolution behind a relu, a linear layer."""
    nn, F = paddle.static.nn, paddle.nn.functional

    def norm(x: Any, act: str | None = None) -> Any:
        return nn.batch_norm(nn.conv2d(x, 8, 3, padding=1, bias_attr=False), act=act)

    h = F.relu(norm(norm(x, "relu")) + norm(x))
    h = nn.conv2d(F.relu(h * 2.0 - 0.3), 8, 3, groups=8, bias_attr=False)
    return nn.fc(F.sigmoid(h + paddle.static.create_parameter([6], "float32")), 3)


def strategy_with(switches: dict[str, Any], fused: bool) -> fleet.DistributedStrategy:
    strategy = fleet.DistributedStrategy()
    build = paddle.static.BuildStrategy()
    if switches.get("reduce"):
        build.reduce_strategy = build.ReduceStrategy.Reduce
    for name in FUSIONS if fused else ():
        setattr(build, name, True)
    strategy.build_strategy = build
    for name, value in switches.items():
        if name != "reduce":
            setattr(strategy, name, value)
    return strategy


def trained(switches: dict[str, Any], fused: bool) -> tuple[dict[str, np.ndarray[Any, Any]], str]:
    strategy = strategy_with(switches, fused)
    main, startup = Program("main"), Program("startup")
    with program_guard(main, startup), names.guard(), scope_guard(Scope()):
        torch.manual_seed(0)
        fleet.init(is_collective=True, strategy=strategy)
        x = paddle.static.data("x", [4, 3, 8, 8], "float32")
        y = paddle.static.data("y", [4, 1], "int64")
        loss = paddle.nn.functional.cross_entropy(net(x), y)
        optimizer = fleet.distributed_optimizer(paddle.optimizer.Momentum(0.05, 0.9), strategy)
        optimizer.minimize(loss)
        exe = paddle.static.Executor()
        exe.run(startup)
        rng = np.random.default_rng(fleet.worker_index())
        for _ in range(3):
            feed = {"x": rng.standard_normal((4, 3, 8, 8)).astype("float32"), "y": rng.integers(0, 3, (4, 1))}
            exe.run(main, feed=feed, fetch_list=[loss])
        scope = paddle.static.global_scope()
        return {p.name: scope.get(p.name).numpy().copy() for p in main.all_parameters()}, str(main)


def ends_where_it_ends_unfused() -> None:
    first, last = json.loads(os.environ["CASES"])
    for switches in SWITCHES[first:last]:
        (wanted, _), (actual, text) = trained(switches, False), trained(switches, True)
        assert "bn_act(" in text or switches.get("sync_batch_norm"), switches
        assert "relu_depthwise(" in text, switches
        assert "fused_momentum(" in text, switches
        bound = (
            2e-3 if switches.get("fp16_allreduce") else 2e-5
        )  # a gradient may be rounded to the next 16-bit number
        for name, value in wanted.items():
            np.testing.assert_allclose(
                actual[name], value, rtol=bound, atol=bound, err_msg=f"{name} with {switches}"
            )


@pytest.mark.parametrize("cases", [(0, 2), pytest.param((2, len(SWITCHES)), marks=pytest.mark.slow)])
def test_two_ranks_end_where_they_end_unfused_with_every_switch(
    ranks: ForkServer, cases: tuple[int, int]
) -> None:
    ranks.check(2, ends_where_it_ends_unfused, timeout_s=250, CASES=json.dumps(cases))

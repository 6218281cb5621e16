"""strategy.recompute with the other strategies: bit-equal to the same strategy without it; averages of weights."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch

import argosy as paddle
from argosy import fluid
from argosy.distributed import fleet
from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.runtime.scope import Scope, scope_guard
from tests.fusing import FUSIONS
from tests.ranks import ForkServer

Arrays = dict[str, np.ndarray[Any, Any]]


def net(x: Any) -> tuple[Any, list[Any]]:
    """Residual blocks with batch norm and dropout, and the sums before their activations."""
    sums = []
    x = paddle.static.nn.conv2d(x, 8, 3, padding=1)
    for _ in range(3):
        y = paddle.static.nn.conv2d(x, 8, 3, padding=1, bias_attr=False)
        y = paddle.static.nn.batch_norm(y, act="relu")
        y = paddle.static.nn.conv2d(y, 8, 3, padding=1, bias_attr=False)
        sums.append(paddle.static.nn.batch_norm(y) + x)
        x = paddle.nn.functional.relu(sums[-1])
    x = paddle.nn.functional.dropout(x, 0.3)
    return paddle.static.nn.fc(x, 4), sums


def trained(checkpoints: Any, part: slice = slice(8), **switches: Any) -> tuple[Arrays, int, str]:
    """The variables after two steps, the computed peak, and the printed program."""
    strategy = fleet.DistributedStrategy()
    for name, value in switches.items():
        setattr(strategy, name, value)
    main, startup = Program("main"), Program("startup")
    with program_guard(main, startup), names.guard(), scope_guard(Scope()):
        torch.manual_seed(0)
        fleet.init(is_collective=True, strategy=strategy)
        x = paddle.static.data("x", [None, 3, 16, 16], "float32")
        y = paddle.static.data("y", [None, 1], "int64")
        out, sums = net(x)
        loss = paddle.nn.functional.cross_entropy(out, y)
        if checkpoints is not None:
            strategy.recompute = True
            strategy.recompute_configs = {"checkpoints": sums if checkpoints == "sums" else checkpoints}
        fleet.distributed_optimizer(paddle.optimizer.Momentum(0.05, 0.9), strategy).minimize(loss)
        ema = paddle.static.ExponentialMovingAverage(0.5)
        ema.update()
        exe = paddle.static.Executor()
        exe.run(startup)
        rng = np.random.default_rng(0)
        torch.manual_seed(5)
        for _ in range(2):
            images, labels = rng.standard_normal((8, 3, 16, 16)).astype("float32"), rng.integers(0, 4, (8, 1))
            exe.run(main, feed={"x": images[part], "y": labels[part]}, fetch_list=[loss])
        scope = paddle.static.global_scope()
        with ema.apply(exe):
            averages = {
                f"average of {p.name}": scope.get(p.name).numpy().copy() for p in main.all_parameters()
            }
        values = {n: v.numpy().copy() for n, v in scope.values_of().items() if v is not None}
        return values | averages, exe.memory_report(main).peak_bytes, str(main)


def assert_equal_with_and_without(checkpoints: str, part: slice = slice(8), **switches: Any) -> Arrays:
    plain, peak, _ = trained(None, part, **switches)
    values, less, text = trained(checkpoints, part, **switches)
    for name, value in plain.items():
        np.testing.assert_array_equal(values[name], value, err_msg=f"{name} with {switches}")
    assert less < 0.9 * peak, switches
    assert "_recompute = " in text, switches
    return values


def fused() -> Any:
    build = paddle.static.BuildStrategy()
    for name in FUSIONS:
        setattr(build, name, True)
    return build


@pytest.mark.parametrize(
    ("amp", "fuses", "checkpoints"),
    [
        pytest.param(1, 1, "auto", marks=pytest.mark.slow),
        pytest.param(0, 1, "sums", marks=pytest.mark.slow),
        pytest.param(1, 0, "sums", marks=pytest.mark.slow),
    ],
)
def test_it_combines_with_mixed_precision_and_fusions(amp: int, fuses: int, checkpoints: str) -> None:
    build = {"build_strategy": fused()} if fuses else {}
    assert_equal_with_and_without(checkpoints, amp=bool(amp), **build)


def combine_with_sync_batch_norm() -> None:
    """On a rank, with fusions."""
    fleet.init(is_collective=True)
    rank = fleet.worker_index()
    half = slice(4 * rank, 4 * rank + 4)
    assert_equal_with_and_without("sums", half, sync_batch_norm=True, build_strategy=fused())


def combine_with_overlap() -> None:
    """On a rank, with several communicators; all ranks have equal averages."""
    fleet.init(is_collective=True)
    rank = fleet.worker_index()
    half = slice(4 * rank, 4 * rank + 4)
    overlap = {"sync_nccl_allreduce": False, "nccl_comm_num": 2, "fuse_grad_size_in_MB": 0}
    values = assert_equal_with_and_without("auto", half, **overlap)
    averages = np.concatenate([v.ravel() for n, v in values.items() if n.startswith("average of")])
    for other in fleet.util.all_gather(averages):
        np.testing.assert_array_equal(other, averages)


def test_it_combines_with_overlap_on_two_ranks(ranks: ForkServer) -> None:
    ranks.check(2, combine_with_overlap)


@pytest.mark.slow
def test_it_combines_with_sync_batch_norm_on_two_ranks(ranks: ForkServer) -> None:
    ranks.check(2, combine_with_sync_batch_norm)


# --- mistakes -----------------------------------------------------------------------------------------


def built() -> tuple[Any, list[Any]]:
    x = paddle.static.data("x", [None, 3, 8, 8], "float32")
    out, sums = net(x)
    return paddle.mean(out), sums


@pytest.mark.parametrize(
    ("checkpoints", "message"),
    [
        ([], r"checkpoints'\] is empty; list the activations to store, use 'auto'"),
        (["elementwise_add_0.tmp_O"], r"has no checkpoint 'elementwise_add_0.tmp_O' \(did you mean "),
        (["x"], "'x' cannot be a checkpoint: it is no activation"),
        (["fc_0.w_0"], "'fc_0.w_0' cannot be a checkpoint"),
    ],
)
def test_wrong_checkpoints_raise_at_minimize(checkpoints: list[str], message: str) -> None:
    strategy = fleet.DistributedStrategy()
    strategy.recompute, strategy.recompute_configs = True, {"checkpoints": checkpoints}
    loss, _ = built()
    fleet.init(is_collective=True, strategy=strategy)
    with pytest.raises(ConfigError, match=message):
        fleet.distributed_optimizer(paddle.optimizer.SGD(0.1)).minimize(loss)


def test_a_budget_needs_auto_and_inductor_excludes_recompute() -> None:
    loss, sums = built()
    fleet.init(is_collective=True)
    strategy = fleet.DistributedStrategy()
    strategy.recompute, strategy.recompute_configs = True, {"checkpoints": sums, "memory_budget_MB": 100}
    with pytest.raises(ConfigError, match='a memory budget needs checkpoints="auto"'):
        fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), strategy).minimize(loss)
    strategy = fleet.DistributedStrategy()
    strategy.recompute, strategy.recompute_configs = True, {"checkpoints": sums}
    strategy.build_strategy.compiler = "inductor"
    with pytest.raises(ConfigError, match="compiler='inductor' and recompute are both on"):
        fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), strategy).minimize(loss)


def test_the_optimizer_of_1_x() -> None:
    loss, sums = built()
    optimizer = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1))
    with pytest.raises(ConfigError, match="recompute has no checkpoints"):
        optimizer.minimize(loss)
    optimizer._set_checkpoints(sums)
    gradients = optimizer.backward(loss)
    optimizer.apply_gradients(gradients)
    assert "convolution_1_recompute = " in str(paddle.static.default_main_program())
    assert "_recompute" not in str(paddle.static.default_main_program().clone(for_test=True))
    with pytest.raises(ConfigError, match="give an optimizer"):
        fluid.optimizer.RecomputeOptimizer(3)

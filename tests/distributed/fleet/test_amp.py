"""strategy.amp: two ranks train as one process with the whole batch, and skip the same steps."""

# SPDX-License-Identifier: Apache-2.0
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import argosy as paddle
from argosy.distributed import fleet
from argosy.distributed.fleet.strategy_checks import check_collective
from argosy.engine import collective
from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.passes.autocast import Autocast
from argosy.engine.runtime.scope import Scope, scope_guard
from tests.ranks import ForkServer

Arrays = dict[str, np.ndarray[Any, Any]]
CASES: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({}, {}),
    ({"dtype": "float16"}, {}),
    ({}, {"sync_nccl_allreduce": False, "nccl_comm_num": 2, "fuse_grad_size_in_MB": 0}),
    ({"dtype": "float16"}, {"fp16_allreduce": True}),
)
HALVING = {"dtype": "float16", "decr_every_n_nan_or_inf": 1, "decr_ratio": 0.5}


def trained(
    configs: dict[str, Any],
    part: slice,
    factor: float = 1.0,
    keeps_copies: bool = True,
    steps: int = 3,
    **switches: Any,
) -> tuple[Arrays, float]:
    """The parameters and the loss scale after some steps on a part of each batch, multiplied by `factor`."""
    strategy = fleet.DistributedStrategy()
    strategy.amp, strategy.amp_configs = True, configs
    for name, value in switches.items():
        is_build = name in ("reduce_strategy", "fuse_all_optimizer_ops")
        setattr(strategy.build_strategy if is_build else strategy, name, value)
    main, startup = Program("main"), Program("startup")
    with program_guard(main, startup), names.guard(), scope_guard(Scope()):
        torch.manual_seed(0)
        fleet.init(is_collective=True, strategy=strategy)
        x = paddle.static.data("x", [None, 3, 8, 8], "float32")
        y = paddle.static.data("y", [None, 1], "int64")
        hidden = paddle.nn.functional.relu(paddle.static.nn.conv2d(x, 8, 3))
        loss = paddle.nn.functional.cross_entropy(paddle.static.nn.fc(hidden, 4), y)
        optimizer = fleet.distributed_optimizer(paddle.optimizer.Momentum(0.02, 0.9), strategy)
        optimizer.minimize(loss)
        autocast = main.build.autocast
        assert isinstance(autocast, Autocast)
        main.build = replace(main.build, autocast=replace(autocast, keeps_copies=keeps_copies))
        exe = paddle.static.Executor()
        exe.run(startup)
        for step in range(steps):
            rng = np.random.default_rng(step)
            images, labels = rng.standard_normal((8, 3, 8, 8)).astype("float32"), rng.integers(0, 4, (8, 1))
            exe.run(main, feed={"x": factor * images[part], "y": labels[part]}, fetch_list=[loss])
        values = paddle.static.global_scope().values_of()
        return {
            p.name: values[p.name].numpy().copy() for p in main.all_parameters()
        }, optimizer.get_loss_scaling()


def train_a_half() -> None:
    """On a rank: the parameters of each case are those of one process with the whole batch."""
    fleet.init(is_collective=True)
    rank = fleet.worker_index()
    half = slice(4 * rank, 4 * rank + 4)
    expected = np.load(os.environ["EXPECTED"])
    for configs, switches in CASES:
        actual, _ = trained(configs, half, **switches)
        for name, value in actual.items():
            what = f"{name} with {configs} {switches}"
            np.testing.assert_allclose(value, expected[name], rtol=0.02, atol=2e-3, err_msg=what)
    skipped, scale = trained(HALVING, half, factor=1e30 if rank == 1 else 1.0)
    assert scale == 32768 / 8, "rank 0 sees the overflow of rank 1, too"
    assert all(np.isfinite(value).all() for value in skipped.values())
    assert not np.array_equal(skipped["fc_0.w_0"], actual["fc_0.w_0"]), "all steps were skipped"


def test_two_ranks_train_as_one_process_and_skip_the_same_steps(ranks: ForkServer, tmp_path: Path) -> None:
    np.savez(tmp_path / "expected.npz", **trained({}, slice(8))[0])
    ranks.check(2, train_a_half, EXPECTED=str(tmp_path / "expected.npz"))


REDUCE = paddle.static.BuildStrategy.ReduceStrategy.Reduce
WITH_COPIES: tuple[dict[str, Any], ...] = (
    {"sync_nccl_allreduce": False, "fuse_all_optimizer_ops": True, "fuse_grad_size_in_MB": 0},
    {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2}},
    {"sharding": True},
    {},
    {"fuse_all_optimizer_ops": True},
    {"localsgd": True, "localsgd_configs": {"k_steps": 2, "begin_step": 1}},
    {"recompute": True, "recompute_configs": {"checkpoints": "auto"}},
    {"lars": True},
    {"reduce_strategy": REDUCE},
    {"amp_configs": {"dtype": "float16", "init_loss_scaling": 2.0**24, "decr_every_n_nan_or_inf": 1}},
    {"amp_configs": {"use_pure_fp16": True, "use_fp16_guard": False}, "fuse_all_optimizer_ops": True},
)


def train_with_copies_and_with_casts() -> None:
    """On a rank: updates that write 16-bit copies train as casts in every step do, bit by bit."""
    fleet.init(is_collective=True)
    half = slice(4 * fleet.worker_index(), 4 * fleet.worker_index() + 4)
    first, last = json.loads(os.environ["CASES"])
    for switches in WITH_COPIES[first:last]:
        settings = dict(switches)
        configs = settings.pop("amp_configs", {})
        copied, _ = trained(configs, half, steps=5, **settings)
        cast, _ = trained(configs, half, keeps_copies=False, steps=5, **settings)
        for name, value in copied.items():
            assert value.tobytes() == cast[name].tobytes(), f"{name} with {switches}"


@pytest.mark.parametrize("cases", [(0, 1), pytest.param((1, len(WITH_COPIES)), marks=pytest.mark.slow)])
def test_16_bit_copies_of_weights_change_no_bit_of_any_strategy(
    ranks: ForkServer, cases: tuple[int, int]
) -> None:
    ranks.check(2, train_with_copies_and_with_casts, timeout_s=120, CASES=json.dumps(cases))


# --- gradients that travel in 16 bits -----------------------------------------------------------------


def sent(dtype: str, **switches: Any) -> tuple[Tensor, Tensor, str]:
    """One step with pure 16-bit products: this rank's gradient, its sum over the ranks, and the printed program."""
    strategy = fleet.DistributedStrategy()
    strategy.amp = True
    strategy.amp_configs = {"dtype": dtype, "use_pure_fp16": True, "use_fp16_guard": False,
                            "use_dynamic_loss_scaling": False, "init_loss_scaling": 1.0}  # fmt: skip
    for name, value in switches.items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy)
    draw = torch.Generator().manual_seed(fleet.worker_index())
    mine = torch.randn(1, 3000, generator=draw) * torch.logspace(-3, 3, 3000)
    main, startup = Program("main"), Program("startup")
    with program_guard(main, startup), names.guard(), scope_guard(Scope()):
        x = paddle.static.data("x", [1, 3000])
        w = paddle.static.create_parameter([3000, 1], "float32", name="w")
        loss = paddle.matmul(x, w).sum() + paddle.nn.functional.layer_norm(x, [3000], weight=norm()).sum()
        optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(1.0), strategy)
        optimizer.minimize(loss)
        exe = paddle.static.Executor()
        exe.run(startup)
        before = paddle.static.global_scope().get("w").clone()
        (fetched,) = exe.run(main, feed={"x": mine.numpy()}, fetch_list=["w@GRAD"])
        moved = (before - paddle.static.global_scope().get("w")).flatten()
        total = torch.from_numpy(fetched).flatten()
        torch.testing.assert_close(moved, total, rtol=1e-4, atol=1e-6)
        rounded = (mine.flatten().to(getattr(torch, dtype)) / fleet.worker_num()).float()
        return rounded, total, str(main)


def norm() -> Any:
    """A weight of a layer norm, whose gradient is float32."""
    return paddle.static.create_parameter([3000], "float32", name="norm")


def sum_in_16_bits() -> None:
    for dtype in ("bfloat16", "float16"):
        for fuses in (True, False):
            mine, total, text = sent(dtype, fuse_all_reduce_ops=fuses)
            assert f"{dtype}[" in text
            wanted = sum(collective.world().group("util").all_gather(mine))
            assert isinstance(wanted, Tensor)
            expected = wanted.to(getattr(torch, dtype)).float()
            assert torch.equal(total, expected), "the float32 sum of rounded gradients, rounded once"
            unit = 2.0**-8 if dtype == "bfloat16" else 2.0**-11
            assert bool(((total - wanted).abs() <= unit * wanted.abs() + 2.0**-25).all())
            if dtype == "bfloat16":
                print(
                    *(line for line in text.splitlines() if "all_reduce" in line or "sgd" in line), sep="\n"
                )


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_sum_of_16_bit_gradients_is_rounded_once_and_updates_read_it(
    ranks: ForkServer, size: int
) -> None:
    """Only 16-bit gradients are sent in 16 bits."""
    lines = [" ".join(line.split()) for line in ranks.check(size, sum_in_16_bits)[0].splitlines()]
    for wanted in (
        "all_reduce_fused(gradient_buffer_1, 0, 3072, dp, w@GRAD) bfloat16[3072]",
        "all_reduce_fused(gradient_buffer, 0, 3008, dp, norm@GRAD) float32[3008]",
        "sgd(w@bfloat16, bucket_view_1, learning_rate_0, 1.0, 0.0, w)",
        "all_reduce(to_bfloat16, dp, w@GRAD) bfloat16[3000, 1]",
        "all_reduce(view_1, dp, norm@GRAD) float32[3000]",
        "sgd(w@bfloat16, wait_1, learning_rate_0, 1.0, 0.0, w)",
    ):
        assert any(line.endswith(wanted) for line in lines), wanted


def test_float16_is_rejected_where_not_every_rank_sees_an_overflow() -> None:
    strategy = fleet.DistributedStrategy()
    strategy.amp, strategy.amp_configs = True, {"dtype": "float16"}
    strategy.build_strategy.reduce_strategy = paddle.static.BuildStrategy.ReduceStrategy.Reduce
    with pytest.raises(ConfigError, match=r"strategy.amp with dtype float16 and .*Reduce are both on"):
        check_collective(strategy, num_ranks=2, num_hosts=1)


def test_the_scale_of_a_program_without_amp_is_an_error() -> None:
    fleet.init(is_collective=True)
    optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(0.1))
    with pytest.raises(ConfigError, match=r"set strategy.amp = True before minimize"):
        optimizer.get_loss_scaling()

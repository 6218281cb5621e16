"""cast_all_reduce: what travels in 16 bits, what is left alone, and how far the sums are from those in 32 bits."""

# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx

import argosy as paddle
from argosy.distributed import fleet
from argosy.distributed.fleet.strategy_passes import training_passes
from argosy.engine.collective import world
from argosy.engine.errors import ConfigError, NanInfError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.ir.serialize import from_dict, to_dict
from argosy.engine.ops.collectives import all_reduce, all_reduce_fused, wait
from argosy.engine.passes.base import Report, rewrite
from argosy.engine.passes.cast_all_reduce import CastAllReduce
from argosy.engine.passes.insert_all_reduce import InsertAllReduce
from argosy.engine.runtime.compile import compile_program
from tests.ranks import ForkServer

cast = torch.ops.aten._to_copy.default
momentum = torch.ops.argosy.momentum.default
Arrays = dict[str, np.ndarray[Any, Any]]


def strategy(dtype: str = "float16", **switches: Any) -> fleet.DistributedStrategy:
    options = fleet.DistributedStrategy()
    options.fp16_allreduce, options.fp16_allreduce_configs = True, {"dtype": dtype}
    for name, value in switches.items():
        setattr(options, name, value)
    return options


def reports(loss: Any, made: fleet.DistributedStrategy) -> dict[str, Report]:
    """Minimize, and rewrite the program for two ranks; what each pass reported."""
    _, pairs = paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)
    passes = training_passes(made, loss.program, pairs, ranks=2)
    by_pass = rewrite(default_main_program(), passes)
    return {one.name: report for one, report in zip(passes, by_pass, strict=True)}


def two_layers(dtype: str = "float32") -> Any:
    x = paddle.static.data("x", [None, 4], dtype)
    return paddle.static.nn.fc(paddle.static.nn.fc(x, 8, activation="relu"), 2).mean()


def nodes(target: object) -> list[fx.Node]:
    return [n for n in default_main_program().graph.nodes if n.target is target]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_casts_before_and_after_the_sum(dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    report = reports(two_layers(), strategy(name, fuse_all_reduce_ops=False))["cast_all_reduce"]
    assert report == Report(4, f"4 of 4 gradients are sent as {name}")
    for started in nodes(all_reduce):
        narrow, (arrived,) = started.args[0], started.users
        (wide,) = arrived.users
        assert (narrow.target, narrow.next, started.next) == (cast, started, arrived)
        assert [n.meta["val"].dtype for n in (narrow, started, arrived, wide)] == [dtype] * 3 + [
            torch.float32
        ]
        assert narrow.args[0].meta["val"].dtype == torch.float32
        (reader,) = wide.users
        assert reader.target is momentum
        assert wide.next is reader, "narrow until it is read"


def test_the_variable_of_a_gradient_is_the_32_bit_sum() -> None:
    reports(two_layers(), strategy(fuse_all_reduce_ops=False))
    program = default_main_program()
    assert str(program.var("fc_0.w_0@GRAD").dtype) == "torch.float32"
    assert "communicate fc_0.w_0@GRAD = _to_copy(wait_2, dtype=float32)" in str(program)
    reader = paddle.tanh(program.var("fc_0.w_0@GRAD"))
    assert reader.node.args[0].target is cast
    assert reader.node.args[0].args[0].target is wait


def test_with_overlap_wait_and_cast_stand_before_the_reader() -> None:
    reports(two_layers(), strategy(fuse_all_reduce_ops=False, sync_nccl_allreduce=False))
    targets = [n.target for n in default_main_program().graph.nodes]
    assert targets[targets.index(wait) :] == [wait, cast, momentum] * 4


@pytest.mark.parametrize("overlaps", [False, True])
def test_fused_gradients_lie_in_one_16_bit_buffer(overlaps: bool) -> None:
    by_pass = reports(two_layers(), strategy(sync_nccl_allreduce=not overlaps))
    assert by_pass["fuse_all_reduce"].text == "4 all_reduce in 1 buckets (4)"
    (fused,) = nodes(all_reduce_fused)
    assert fused.args[0].meta["val"].dtype == torch.float16
    assert len(nodes(cast)) == 4, "to 32 bits; to 16 bits, writing into the buffer does"
    schedule = compile_program(default_main_program(), []).schedule
    assert any(line.startswith("all_reduce_fused") and "float16" in line for line in schedule)


def test_gradients_of_other_dtypes_are_left_alone_and_named() -> None:
    x = paddle.static.data("x", [None, 4], "float32")
    y = paddle.static.data("y", [None, 4], "float64")
    loss = paddle.static.nn.fc(x, 2).mean().astype("float64") + paddle.static.nn.fc(y, 2).mean()
    report = reports(loss, strategy(fuse_all_reduce_ops=False))["cast_all_reduce"]
    assert report == Report(2, "2 of 4 gradients are sent as float16; left alone: 2 float64")


def test_the_rows_of_a_sparse_table_keep_32_bits() -> None:
    ids = paddle.static.data("ids", [None], "int64")
    rows = paddle.static.nn.embedding(ids, [10, 4], is_sparse=True)
    by_pass = reports(paddle.static.nn.fc(rows, 2).mean(), strategy())
    assert by_pass["cast_all_reduce"].text == "2 of 2 gradients are sent as float16"
    (gathered,) = nodes(torch.ops.argosy.gather_rows.default)
    assert gathered.meta["val"][0].dtype == torch.float32


def test_a_copy_for_the_exchange_is_not_needed_any_more() -> None:
    """The gradient of w1 goes into that of w2, so that the sum must not be made in its memory."""
    x = paddle.static.data("x", [None, 4], "float32")
    make = paddle.static.create_parameter
    w = make([4, 3], "float32", name="w1") + make([4, 3], "float32", name="w2") * 0.5
    by_pass = reports(paddle.matmul(x, w).mean(), strategy(fuse_all_reduce_ops=False))
    assert "1 of them in a copy" in by_pass["insert_all_reduce"].text
    assert not nodes(torch.ops.aten.clone.default)
    (started,) = [n for n in nodes(all_reduce) if n.args[2] == "w1@GRAD"]
    assert started.args[0].target is cast
    assert started.args[0].args[0].meta["role"] == "backward"


def test_a_second_run_changes_nothing() -> None:
    reports(two_layers(), strategy(fuse_all_reduce_ops=False))
    program = default_main_program()
    once = str(program)
    gradients = tuple((str(n.args[2]), program.var(str(n.args[2])).node) for n in nodes(all_reduce))
    assert rewrite(program, [CastAllReduce(), InsertAllReduce(gradients)]) == [
        Report(0, "0 of 4 gradients are sent as float16; left alone: 4 float16"),
        Report(0, "0 gradients are all-reduced over group 'dp'; 4 are reduced already"),
    ]
    assert str(program) == once


def test_a_program_by_itself_can_be_cast_later() -> None:
    """The pass runs without insert_all_reduce before it: the variables are bound to the waits already."""
    options = fleet.DistributedStrategy()
    options.fuse_all_reduce_ops = False
    reports(two_layers(), options)
    (report,) = rewrite(default_main_program(), [CastAllReduce(torch.bfloat16)])
    assert report.changed == 4
    assert default_main_program().var("fc_0.w_0@GRAD").node.target is cast


@pytest.mark.parametrize("fuses", [False, True])
def test_a_program_that_was_saved_and_loaded_is_the_same(fuses: bool) -> None:
    reports(two_layers(), strategy("bfloat16", fuse_all_reduce_ops=fuses))
    assert str(from_dict(to_dict(default_main_program()))) == str(default_main_program())


def test_the_strategy_accepts_two_dtypes() -> None:
    with pytest.raises(ConfigError, match="'int8'; use one of 'float16', 'bfloat16'"):
        strategy("int8")


# --- two ranks ----------------------------------------------------------------------------------------

PARTS = np.float32([[1, 1, 3.14159, 2000.25, 1e-8, 3e-6, 1.0, 65504, -7e4, 1e30],
                    [1, -1, 2.71828, 0.125, 1e-8, 5e-6, 1e-4, 65504, 1.0, 1e30]])  # fmt: skip
"""A gradient on either rank: plain, cancelling, rounded, too small, subnormal, absorbed, at the edge, too large."""
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""How far a number is from the nearest 16-bit one, as a part of itself."""


def gradient(mine: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Exchange a gradient with this value and fetch what arrives."""
    x = paddle.static.data("x", [len(mine)], "float32")
    w = paddle.static.create_parameter([len(mine)], "float32", name="w")
    _, ((_, grad),) = fleet.distributed_optimizer(paddle.optimizer.SGD(0.1)).minimize((w * x).sum())
    exe = paddle.static.Executor()
    exe.run(paddle.static.default_startup_program())
    (gradient,) = exe.run(feed={"x": mine}, fetch_list=[grad])
    return np.asarray(gradient)


def mlp() -> Any:
    x = paddle.static.data("x", [6, 3, 16, 16], "float32").reshape([-1, 768])
    for size in (32, 32):
        x = paddle.static.nn.fc(x, size, activation="tanh")
    return classes(x)


def convolutions() -> Any:
    x = paddle.static.data("x", [6, 3, 16, 16], "float32")
    for size in (8, 16, 16):
        x = paddle.static.nn.conv2d(x, size, 3, stride=2, padding=1, act="relu")
    return classes(x)


def classes(x: Any) -> Any:
    y = paddle.static.data("y", [6, 1], "int64")
    return paddle.nn.functional.cross_entropy(paddle.static.nn.fc(x, 10), y)


def train(net: Callable[[], Any]) -> tuple[Arrays, Arrays]:
    """The gradients of the first of five steps, and the parameters after the last."""
    loss, rank = net(), fleet.worker_index()
    _, pairs = fleet.distributed_optimizer(paddle.optimizer.Momentum(0.05, 0.9)).minimize(loss)
    exe = paddle.static.Executor()
    gradients: Arrays = {}
    paddle.static.default_startup_program().random_seed = 3
    exe.run(paddle.static.default_startup_program())
    for step in range(5):
        drawn = np.random.default_rng(step)
        x, y = drawn.standard_normal((2, 6, 3, 16, 16)), drawn.integers(0, 10, (2, 6, 1))
        fetched = exe.run(
            feed={"x": x[rank].astype("float32"), "y": y[rank]}, fetch_list=[g for _, g in pairs]
        )
        gradients = gradients or {p.name: g.copy() for (p, _), g in zip(pairs, fetched, strict=True)}
    scope = paddle.static.global_scope()
    return gradients, {p.name: scope.get(p.name).numpy().copy() for p, _ in pairs}


def with_strategy(made: fleet.DistributedStrategy, job: Callable[..., Any], *args: Any) -> Any:
    """Run it with this strategy, in programs, names and a scope of its own."""
    fleet.init(is_collective=True, strategy=made)
    guard = paddle.static.program_guard(Program(), Program())
    with guard, names.guard(), paddle.static.scope_guard(paddle.static.Scope()):
        return job(*args)


def rounded_sum(dtype: str) -> np.ndarray[Any, Any]:
    """Each part is rounded, then their sum; the loss's gradient is 1/2 on two ranks."""
    first, second = torch.from_numpy(PARTS / 2).to(getattr(torch, dtype))
    return np.asarray((first + second).float())


def distance(actual: Arrays, wanted: Arrays) -> float:
    """How far apart, as a part of the wanted one's norm."""
    f, w = (np.concatenate([one[name].ravel() for name in wanted]) for one in (actual, wanted))
    return float(np.linalg.norm(f - w) / np.linalg.norm(w))


def all_reduce_casts() -> None:
    fleet.init(is_collective=True)
    assert (world().group("dp").shm is None) == (os.environ["ARGOSY_SHM"] == "0")
    for dtype in UNIT:
        for switches in ({}, {"fuse_all_reduce_ops": False}, {"sync_nccl_allreduce": False}):
            actual = with_strategy(strategy(dtype, **switches), gradient, PARTS[fleet.worker_index()])
            np.testing.assert_array_equal(actual, rounded_sum(dtype), f"{dtype}, {switches}")


@pytest.mark.parametrize("shm", ["1", pytest.param("0", marks=pytest.mark.slow)])
def test_two_ranks_get_the_rounded_sum_of_rounded_gradients(ranks: ForkServer, shm: str) -> None:
    """Fused or not, overlapped or not, through shared memory or gloo."""
    ranks.check(2, all_reduce_casts, ARGOSY_SHM=shm)


def train_both_ways() -> None:
    for net in (mlp, convolutions):
        gradients, parameters = with_strategy(fleet.DistributedStrategy(), train, net)
        for dtype, unit in UNIT.items():
            found_gradients, found_parameters = with_strategy(strategy(dtype), train, net)
            off = distance(found_gradients, gradients), distance(found_parameters, parameters)
            assert 0 < off[0] < unit, (dtype, net.__name__, off)
            assert 0 < off[1] < unit, (dtype, net.__name__, off)


@pytest.mark.slow
def test_after_five_steps_the_parameters_are_within_the_stated_bound(ranks: ForkServer) -> None:
    ranks.check(2, train_both_ways)


def overflow() -> None:
    paddle.set_flags({"FLAGS_check_nan_inf": True})
    with pytest.raises(NanInfError, match=r"^copy_into_bucket .* made 1 values of infinity"):
        with_strategy(strategy(), gradient, np.float32([1.0, 2e5]))


def test_a_gradient_that_is_too_large_is_named_if_somebody_looks(ranks: ForkServer) -> None:
    ranks.check(2, overflow)

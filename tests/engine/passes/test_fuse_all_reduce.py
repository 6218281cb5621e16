"""fuse_all_reduce: which gradients share a bucket, where its all-reduce starts, which gradients get none."""

# SPDX-License-Identifier: Apache-2.0

import pytest
from torch import fx

import argosy as paddle
from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.distributed.fleet.strategy_passes import training_passes
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.log import NOTICE
from argosy.engine.ops.collectives import all_reduce, all_reduce_fused, wait
from argosy.engine.ops.gradient_buckets import bucket_view, copy_into_bucket, gradient_buffer, mm_into_bucket
from argosy.engine.passes.base import Report, rewrite
from argosy.engine.passes.fuse_all_reduce import FuseAllReduce


def built(dtype: str = "float32", **switches: object) -> tuple[Program, Report]:
    """Three layers, [4, 8], [8, 8] and [8, 2] with biases, rewritten for two ranks."""
    x = paddle.static.data("x", [None, 4], dtype)
    for size in (8, 8, 2):
        x = paddle.static.nn.fc(x, size)
    loss = x.mean()
    _, pairs = paddle.optimizer.SGD(0.1).minimize(loss)
    strategy = DistributedStrategy()
    for name, value in switches.items():
        setattr(strategy, name, value)
    return default_main_program(), rewrite(
        default_main_program(), training_passes(strategy, loss.program, pairs, ranks=2)
    )[-1]


def nodes(program: Program, target: object) -> list[fx.Node]:
    return [n for n in program.graph.nodes if n.target is target]


def test_all_gradients_of_a_small_model_travel_together(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(NOTICE):
        program, report = built()
    (fused,) = nodes(program, all_reduce_fused)
    assert not nodes(program, all_reduce)
    assert len(nodes(program, wait)) == 1
    assert len(nodes(program, bucket_view)) == 6
    assert len(nodes(program, copy_into_bucket)) == len(nodes(program, mm_into_bucket)) == 3, (
        "biases; weights"
    )
    assert fused.args[4] == "fc_2.w_0@GRAD … fc_0.b_0@GRAD"
    assert report == Report(1, "6 all_reduce in 1 buckets (6)")
    assert (
        "Find all_reduce operators: 6. To make the speed faster, some all_reduce ops are fused during training, "
        "after fusion, the number of all_reduce ops is 1."
    ) in caplog.text


def test_a_layer_stays_together_whatever_the_size_says() -> None:
    program, report = built(fuse_grad_size_in_MB=0)
    assert report.text == "6 all_reduce in 3 buckets (2, 2, 2)"
    assert [n.args[4] for n in nodes(program, all_reduce_fused)] == [
        "fc_2.w_0@GRAD … fc_2.b_0@GRAD",
        "fc_1.w_0@GRAD … fc_1.b_0@GRAD",
        "fc_0.w_0@GRAD … fc_0.b_0@GRAD",
    ]


def test_a_group_is_full_with_more_gradients_than_allowed() -> None:
    _, report = built(_fuse_grad_size_in_TFLOPS=3)
    assert report.text == "6 all_reduce in 2 buckets (4, 2)"


def test_an_exchange_begins_when_its_last_gradient_is_there_and_is_waited_for_before_its_readers() -> None:
    for overlaps in (False, True):
        with paddle.static.program_guard(Program(), Program()), paddle.utils.unique_name.guard():
            program, _ = built(fuse_grad_size_in_MB=0, sync_nccl_allreduce=not overlaps)
        place = {node: number for number, node in enumerate(program.graph.nodes)}
        for fused in nodes(program, all_reduce_fused):
            assert fused.prev.target in (copy_into_bucket, mm_into_bucket), "right behind the last gradient"
            waits = list(fused.users)
            last_backward = max(place[n] for n in program.graph.nodes if n.meta["role"] == "backward")
            first = fused is nodes(program, all_reduce_fused)[0]
            if first:
                assert (min(place[w] for w in waits) > last_backward) == overlaps
            assert all(place[w] > place[fused] for w in waits)
        program.graph.lint()


def test_the_variable_of_a_gradient_is_the_sum() -> None:
    program, _ = built()
    assert program.var("fc_1.w_0@GRAD").node.target is bucket_view
    assert "fc_1.w_0@GRAD = bucket_view(" in str(program)


def test_gradients_of_two_dtypes_travel_apart() -> None:
    x = paddle.static.data("x", [None, 4], "float32")
    y = paddle.static.data("y", [None, 4], "float64")
    loss = (
        paddle.static.nn.fc(x, 2, name="a").mean().astype("float64")
        + paddle.static.nn.fc(y, 2, name="b").mean()
    )
    _, pairs = paddle.optimizer.SGD(0.1).minimize(loss)
    report = rewrite(default_main_program(), training_passes(DistributedStrategy(), loss.program, pairs, 2))[
        -1
    ]
    assert report.text == "4 all_reduce in 2 buckets (2, 2)"


def test_switched_off_every_gradient_travels_alone() -> None:
    program, _ = built(fuse_all_reduce_ops=False)
    assert len(nodes(program, all_reduce)) == 6
    assert not nodes(program, all_reduce_fused)


def test_a_second_run_changes_nothing() -> None:
    program, _ = built()
    before = str(program)
    assert rewrite(program, [FuseAllReduce()]) == [Report(0, "no all_reduce")]
    assert str(program) == before


def test_the_gradients_of_two_minimizes_travel_apart() -> None:
    x = paddle.static.nn.fc(paddle.static.data("x", [None, 4]), 2)
    first, second = x.mean(), (x * x).mean()
    for loss in (first, second):
        _, pairs = paddle.optimizer.SGD(0.1).minimize(loss)
        rewrite(default_main_program(), training_passes(DistributedStrategy(), loss.program, pairs, 2))
    fused = nodes(default_main_program(), all_reduce_fused)
    assert [n.args[1:3] for n in fused] == [(0, 128), (0, 128)]
    first, second = nodes(default_main_program(), gradient_buffer)
    assert first.args[3] != second.args[3], "each has a buffer: the first sums may still be read"
    strategy = DistributedStrategy()
    strategy.fuse_all_reduce_ops = False
    with paddle.static.program_guard(Program(), Program()):
        y = paddle.static.nn.fc(paddle.static.data("x", [None, 4]), 2, bias_attr=False)
        for loss in (y.mean(), (y * y).mean()):  # one gradient each: nothing is fused yet
            _, pairs = paddle.optimizer.SGD(0.1).minimize(loss)
            rewrite(default_main_program(), training_passes(strategy, loss.program, pairs, 2))
        (report,) = rewrite(default_main_program(), [FuseAllReduce()])
    assert report.text == "2 all_reduce in 2 buckets (1, 1)"

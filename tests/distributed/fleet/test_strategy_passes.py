"""plan: which passes a strategy asks for, and what they make of whole programs; no process is started."""

# SPDX-License-Identifier: Apache-2.0
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import argosy as paddle
from argosy.distributed import fleet
from argosy.distributed.fleet.strategy_passes import startup_passes, training_passes
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.ops.collectives import all_reduce_fused
from argosy.engine.passes.base import rewrite
from argosy.engine.passes.fuse_all_reduce import FuseAllReduce, _in_order

ROOT = Path(__file__).parents[3]


def strategy(**switches: Any) -> fleet.DistributedStrategy:
    options = fleet.DistributedStrategy()
    for name, value in switches.items():
        setattr(options, name, value)
    return options


def norm_net() -> Any:
    """A loss behind a convolution and a batch norm."""
    x = paddle.static.data("x", [None, 3, 8, 8], "float32")
    h = paddle.static.nn.batch_norm(paddle.static.nn.conv2d(x, 4, 3, bias_attr=False), act="relu")
    return paddle.static.nn.fc(h, 2).mean()


def passes(loss: Any, strategy: fleet.DistributedStrategy, **minimize: Any) -> list[Any]:
    _, pairs = paddle.optimizer.Momentum(0.1, 0.9).minimize(loss, **minimize)
    return training_passes(strategy, loss.program, pairs, ranks=2)


def test_the_default_scales_the_loss_and_adds_gradients_up() -> None:
    selected = passes(norm_net(), strategy())
    assert [one.name for one in selected] == ["scale_loss_gradient", "insert_all_reduce", "fuse_all_reduce"]
    assert selected[0].ranks == 2
    assert not selected[1].overlap


def test_each_switch_asks_for_its_pass() -> None:
    selected = passes(norm_net(), strategy(sync_batch_norm=True, sync_nccl_allreduce=False))
    assert [one.name for one in selected] == [
        "sync_batch_norm",
        "scale_loss_gradient",
        "insert_all_reduce",
        "fuse_all_reduce",
        "order_updates",
    ]
    assert selected[0].ranks == 2
    assert selected[2].overlap


def test_the_switch_of_the_build_strategy_counts_too() -> None:
    options = strategy()
    options.build_strategy.sync_batch_norm = True
    assert passes(norm_net(), options)[0].name == "sync_batch_norm"


def test_without_scaling_the_gradients_are_summed_only() -> None:
    options = strategy()
    options.build_strategy.gradient_scale_strategy = paddle.static.BuildStrategy.GradientScaleStrategy.One
    assert [one.name for one in passes(norm_net(), options)] == ["insert_all_reduce", "fuse_all_reduce"]


def test_a_sparse_table_is_gathered_before_the_rest_is_added_up() -> None:
    ids = paddle.static.data("ids", [None], "int64")
    rows = paddle.static.nn.embedding(ids, [10, 4], is_sparse=True)
    selected = passes(paddle.static.nn.fc(rows, 2).mean(), strategy())
    assert [one.name for one in selected][1:] == [
        "gather_sparse_gradients",
        "insert_all_reduce",
        "fuse_all_reduce",
    ]
    rewrite(default_main_program(), selected)
    assert "all_reduce" in str(default_main_program())
    assert "embedding_0.w_0@GRAD = wait" not in str(default_main_program())


def test_gradients_come_in_the_order_of_backward() -> None:
    selected = passes(norm_net(), strategy(fuse_all_reduce_ops=False))[-1]
    names = [name for name, _ in selected.gradients]
    assert names[0].startswith("fc_0.")
    assert names[-1] == "conv2d_0.w_0@GRAD"


def test_a_loss_that_was_differentiated_before_is_scaled_where_this_backward_begins() -> None:
    loss = norm_net()
    (before,) = paddle.static.gradients(loss, default_main_program().var("conv2d_0.tmp_0"))
    rewrite(default_main_program(), passes(loss, strategy(), parameters=["fc_0.w_0"]))
    rewrite(default_main_program(), passes(loss, strategy(), parameters=["fc_0.b_0"]))
    text = str(default_main_program())
    assert f"{loss.name}@GRAD = ones_like" in text, "the user's own gradient stays as it was asked for"
    assert f"{loss.name}@GRAD@1 = full_like" in text
    assert f"{loss.name}@GRAD@2 = full_like" in text
    assert before.name == "conv2d_0.tmp_0@GRAD"


def test_a_second_minimize_finds_batch_norms_that_are_synchronised_and_synchronises_its_backward() -> None:
    first = norm_net()
    hidden = default_main_program().var("batch_norm_0.tmp_3")
    second = paddle.static.nn.fc(hidden, 2).mean()
    options = strategy(sync_batch_norm=True)
    for loss in (first, second):
        rewrite(default_main_program(), passes(loss, options))
    text = str(default_main_program())
    assert text.count("= sync_batch_norm(") == 1
    assert text.count("= sync_batch_norm_backward(") == 2
    assert "native_batch_norm" not in text


def test_the_program_for_testing_exchanges_nothing_and_is_that_of_one_process() -> None:
    selected = passes(norm_net(), strategy(sync_batch_norm=True))
    before = default_main_program().clone(for_test=True)
    rewrite(default_main_program(), selected)
    after = default_main_program().clone(for_test=True)
    assert not any(node.meta["role"] == "communicate" for node in after.graph.nodes)

    def lines(program: Program) -> list[str]:  # inference does not read the momentum, so it may differ
        return [re.sub(r"False, [0-9.]+, 1e-05", "", line) for line in str(program).splitlines()[1:]]

    assert lines(after) == lines(before)


def test_a_norm_without_running_statistics_is_tested_with_the_batch_of_the_rank() -> None:
    x = paddle.static.data("x", [None, 3, 8, 8], "float32")
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4, track_running_stats=False))
    rewrite(default_main_program(), passes(net(x).mean(), strategy(sync_batch_norm=True)))
    assert "= sync_batch_norm(" in str(default_main_program())
    assert "= native_batch_norm(" in str(default_main_program().clone(for_test=True))


@pytest.mark.slow
def test_resnet50_has_an_all_reduce_for_each_gradient_and_a_broadcast_for_each_variable() -> None:
    """161 parameters; 53 batch norms with two statistics each. The groups are those of Paddle 2.0's logs."""
    resnet = runpy.run_path(str(ROOT / "examples/resnet/resnet.py"))["ResNet"]
    image = paddle.static.data("x", [2, 3, 64, 64], "float32")
    label = paddle.static.data("y", [2, 1], "int64")
    loss = paddle.nn.functional.cross_entropy(resnet(50).net(image, 102), label)
    main, startup = default_main_program(), default_startup_program()
    equal = set(startup.persistables())
    *inserting, fusing = passes(loss, strategy())
    *_, report = rewrite(main, inserting)
    rewrite(startup, startup_passes(startup, equal))
    assert report.text == "161 gradients are all-reduced over group 'dp'", "none of them in a copy"
    assert str(main).count(" = all_reduce(") == 161
    assert str(main).count("@GRAD = wait(") == 161
    assert str(startup).count(" = broadcast(") == 161 + 106
    assert inserting[-1].gradients[0][0] == "fc_0.w_0@GRAD"
    assert inserting[-1].gradients[-1][0] == "conv1_weights@GRAD"

    starts = _in_order(main.graph)
    for memory_mb, most, wanted in (
        (32, 50, [20, 33, 51, 51, 6]),
        (16, 50, [11, 9, 9, 36, 51, 45]),
        (-1, 1, [2] + [1] * 159),
        (32, 1, [20, 33, 108]),
        (32, 20, [20, 21, 21, 21, 21, 21, 21, 15]),
    ):
        assert [len(g) for g in FuseAllReduce(memory_mb, most).buckets(starts)] == wanted
    assert rewrite(main, [fusing])[0].text == "161 all_reduce in 5 buckets (20, 33, 51, 51, 6)"
    started = [n for n in main.graph.nodes if n.target is all_reduce_fused]
    assert [n.args[2] for n in started] == [9134208, 8538112, 5094144, 936832, 13760], (
        "elements, with padding"
    )
    assert [n.args[1] for n in started] == [0, 9134208, 17672320, 22766464, 23703296], "one behind the other"
    assert str(main).count(" = gradient_buffer(23717056, float32, dp, @FUSEDVAR@@GRAD@fc_0.") == 1
    assert str(main).count(" = copy_into_bucket(") == 160
    assert str(main).count(" = mm_into_bucket(") == 1, "of the last layer"
    assert str(main).count("@GRAD = bucket_view(") == 161
    last = [str(n.args[4]).split(" … ")[1] for n in started]
    assert last == [
        "res5b_branch2a_weights@GRAD",
        "res4d_branch2c_weights@GRAD",
        "res3c_branch2b_weights@GRAD",
        "res2a_branch2b_weights@GRAD",
        "conv1_weights@GRAD",
    ]

"""fuse_bn_act: what it takes, what it leaves alone and why, and that training goes as before."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

import argosy as paddle
from argosy.engine import kernels
from argosy.engine.ir.build import Build
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.ir.variable import Variable
from argosy.engine.passes.fuse_bn_act import FuseBnAct
from argosy.engine.runtime.executor import Executor
from tests.fusing import assert_trains_alike, built, fused

pytestmark = pytest.mark.skipif(kernels.unavailable() is not None, reason=str(kernels.unavailable()))


def conv(x: Variable) -> Variable:
    return paddle.static.nn.conv2d(x, 8, 3, bias_attr=False)


def norm(x: Variable, act: str | None = None) -> Variable:
    return paddle.static.nn.batch_norm(conv(x), act=act)


def two_layers(x: Variable) -> Variable:
    return norm(norm(x, "relu"), "relu")


def test_a_norm_and_its_relu_become_one_node_each_way() -> None:
    main, _, _ = built(two_layers)
    ops, (report,) = fused(main, FuseBnAct())
    assert (ops["bn_act"], ops["bn_act_backward"]) == (2, 2)
    assert not ops["native_batch_norm"] + ops["native_batch_norm_backward"] + ops["relu"]
    assert not ops["threshold_backward"]
    assert report.changed == 4
    assert report.notices == ("---  detected 2 subgraphs", "---  detected 2 subgraphs")
    assert report.text == "2 of 2 batch norms fused; 2 of 2 of their backwards fused"


def test_a_second_run_changes_nothing() -> None:
    main, _, _ = built(two_layers)
    once, _ = fused(main, FuseBnAct())
    twice, (_, second) = fused(main, FuseBnAct(), FuseBnAct())
    assert twice == once
    assert (second.changed, second.text) == (0, "nothing to fuse")


@pytest.mark.parametrize(
    "act", ["relu", "silu", *(pytest.param(act, marks=pytest.mark.slow) for act in ("tanh", "sigmoid"))]
)
def test_training_goes_as_before(act: str) -> None:
    function = getattr(paddle.nn.functional, act)
    assert_trains_alike(lambda x: function(norm(function(norm(x)))), FuseBnAct())


def test_a_batch_of_any_size_is_taken() -> None:
    assert_trains_alike(two_layers, FuseBnAct(), shape=[None, 3, 9, 9])


def test_a_norm_of_rows_is_taken() -> None:
    def net(x: Variable) -> Variable:
        return paddle.static.nn.batch_norm(paddle.static.nn.fc(x, 6), act="relu")

    assert_trains_alike(net, FuseBnAct(), shape=[16, 5])


def test_a_norm_with_other_readers_is_left_alone() -> None:
    def net(x: Variable) -> Variable:
        t = norm(x)
        return paddle.nn.functional.relu(t) + t

    main, _, _ = built(net)
    ops, (report,) = fused(main, FuseBnAct())
    assert ops["bn_act"] == 0
    assert "0 of 1 batch norms fused, skipped: 1 because add reads the norm too" in report.text


def test_a_norm_without_an_activation_is_left_alone() -> None:
    main, _, _ = built(norm)
    _, (report,) = fused(main, FuseBnAct())
    assert report.text == (
        "0 of 1 batch norms fused, skipped: 1 because no activation follows (native_batch_norm)"
    )


def test_a_gradient_with_other_readers_keeps_its_backward() -> None:
    main, _, loss = built(lambda x: norm(x, "relu"), trains=False)
    paddle.static.append_backward(loss)
    ops, (report,) = fused(main, FuseBnAct())
    assert (ops["bn_act"], ops["bn_act_backward"]) == (1, 1), report


def test_a_fetched_norm_is_left_alone_and_its_relu_may_be_fetched() -> None:
    x = paddle.static.data("x", [4, 3, 6, 6], "float32")
    t = norm(x)
    y = paddle.nn.functional.relu(t)
    paddle.optimizer.SGD(0.0).minimize(paddle.mean(y))
    main = default_main_program()
    exe = Executor()
    exe.run(default_startup_program())
    feed = {"x": torch.randn(4, 3, 6, 6)}
    plain = exe.run(main, feed=feed, fetch_list=[t, y])
    main.build = Build(fusions=(FuseBnAct(),))
    main.touch()
    both = exe.run(main, feed=feed, fetch_list=[t, y])
    alone = exe.run(main, feed=feed, fetch_list=[y])
    for actual, wanted in zip((*both, *alone), (*plain, plain[1]), strict=True):
        torch.testing.assert_close(torch.from_numpy(actual), torch.from_numpy(wanted), rtol=1e-5, atol=1e-5)


def test_other_types_are_left_alone() -> None:
    with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
        x = paddle.static.data("x", [4, 3, 6, 6], "float64")
        weight = paddle.static.create_parameter([3], "float64")
        paddle.nn.functional.relu(torch.nn.functional.batch_norm(x, None, None, weight, weight, True))
        _, (report,) = fused(paddle.static.default_main_program(), FuseBnAct())
    assert "1 because it is float64" in report.text


def test_a_norm_at_inference_is_left_alone() -> None:
    main, _, _ = built(two_layers)
    _, (report,) = fused(main.clone(for_test=True), FuseBnAct())
    assert report.text == "nothing to fuse"


def test_a_test_program_of_a_fused_one_runs_with_running_statistics() -> None:
    main, startup, loss = built(two_layers)
    main.build = Build(fusions=(FuseBnAct(),))
    test = main.clone(for_test=True)
    exe = Executor()
    exe.run(startup)
    feed = {"x": torch.randn(6, 3, 9, 9)}
    first = exe.run(test, feed=feed, fetch_list=[loss.name])[0]
    exe.run(main, feed=feed)
    assert exe.run(test, feed=feed, fetch_list=[loss.name])[0] != first


def test_what_is_printed_is_what_runs() -> None:
    main, _, _ = built(two_layers)
    assert "native_batch_norm(" in str(main)
    main.build = Build(fusions=(FuseBnAct(),))
    text = str(main)
    assert "bn_act(" in text
    assert "native_batch_norm(" not in text

"""fuse_bn_add_act: which sums it takes, who wins them, and that training goes as before."""

# SPDX-License-Identifier: Apache-2.0
import pytest

import argosy as paddle
from argosy.engine import kernels
from argosy.engine.ir.variable import Variable
from argosy.engine.passes.fuse_bn_act import FuseBnAct
from argosy.engine.passes.fuse_bn_add_act import FuseBnAddAct
from argosy.engine.passes.fuse_elewise_add_act import FuseElewiseAddAct
from tests.fusing import assert_trains_alike, built, fused

pytestmark = pytest.mark.skipif(kernels.unavailable() is not None, reason=str(kernels.unavailable()))


def norm(x: Variable, act: str | None = None) -> Variable:
    return paddle.static.nn.batch_norm(paddle.static.nn.conv2d(x, 8, 3, padding=1, bias_attr=False), act=act)


def residual(x: Variable) -> Variable:
    """A block with a projection, then one without: as in a ResNet."""
    first = paddle.nn.functional.relu(norm(norm(x, "relu")) + norm(x))
    return paddle.nn.functional.relu(first + norm(norm(first, "relu")))


def test_a_norm_its_addition_and_its_relu_become_one_node_each_way() -> None:
    main, _, _ = built(residual)
    plain, _ = fused(main)
    ops, (report,) = fused(main, FuseBnAddAct())
    assert (ops["bn_act"], ops["bn_act_backward"]) == (2, 2)
    assert plain["add"] - ops["add"] == 3  # two sums, and the two gradients of the value in the middle
    assert report.notices == ("---  detected 2 subgraphs", "---  detected 2 subgraphs")


def test_a_second_run_changes_nothing() -> None:
    main, _, _ = built(residual)
    once, _ = fused(main, FuseBnAddAct())
    twice, (_, second) = fused(main, FuseBnAddAct(), FuseBnAddAct())
    assert twice == once
    assert second.text == "nothing to fuse"


def test_training_goes_as_before() -> None:
    assert_trains_alike(residual, FuseBnAddAct())
    assert_trains_alike(residual, FuseBnAct(), FuseBnAddAct(), FuseElewiseAddAct(), shape=[None, 3, 9, 9])


def test_it_wins_the_sums_and_says_so() -> None:
    main, _, _ = built(residual)
    ops, reports = fused(main, FuseBnAct(), FuseBnAddAct(has_rival=True), FuseElewiseAddAct())
    assert ops["add_act"] == 0
    assert "2 sums go to fuse_bn_add_act, which runs before fuse_elewise_add_act" in reports[1].notices
    assert reports[2].text == "nothing to fuse"


def test_without_it_the_sums_go_to_fuse_elewise_add_act() -> None:
    main, _, _ = built(residual)
    ops, _ = fused(main, FuseBnAct(), FuseElewiseAddAct())
    assert (ops["bn_act"], ops["add_act"], ops["act_backward"]) == (2, 2, 2)


def test_a_sum_with_other_readers_is_left_alone() -> None:
    def net(x: Variable) -> Variable:
        total = norm(x) + norm(x)
        return paddle.nn.functional.relu(total) * total

    main, _, _ = built(net)
    _, (report,) = fused(main, FuseBnAddAct())
    assert "1 because the sum has other readers" in report.text


def test_what_is_spread_over_the_norm_is_left_alone() -> None:
    def net(x: Variable) -> Variable:
        return paddle.nn.functional.relu(norm(x) + paddle.mean(x, axis=[1, 2, 3], keepdim=True))

    main, _, _ = built(net)
    _, (report,) = fused(main, FuseBnAddAct())
    assert "skipped: 1 because the other summand" in report.text

"""native_batch_norm: norms that stand alone run in our kernel, and training goes as before."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

import argosy as paddle
from argosy.engine import kernels
from argosy.engine.ir.variable import Variable
from argosy.engine.passes.native_batch_norm import NativeBatchNorm
from tests.fusing import assert_trains_alike, built, fused

pytestmark = pytest.mark.skipif(kernels.unavailable() is not None, reason=str(kernels.unavailable()))


def net(x: Variable) -> Variable:
    for _ in range(2):
        x = paddle.static.nn.batch_norm(paddle.static.nn.conv2d(x, 8, 3, bias_attr=False))
    return x


def test_norms_and_their_backwards_are_taken_and_training_goes_as_before() -> None:
    main, _, _ = built(net)
    ops, (report,) = fused(main, NativeBatchNorm())
    assert (ops["bn_act"], ops["bn_act_backward"]) == (2, 2)
    assert report.text == "4 of 4 batch norms and their backwards fused"
    assert_trains_alike(net, NativeBatchNorm(), shape=[None, 3, 9, 9])


def test_a_second_run_changes_nothing_and_inference_is_left_alone() -> None:
    main, _, _ = built(net)
    _, (_, second) = fused(main, NativeBatchNorm(), NativeBatchNorm())
    assert (second.changed, second.text) == (0, "no batch norm is left")
    _, (report,) = fused(main.clone(for_test=True), NativeBatchNorm())
    assert report.changed == 0


def test_other_types_are_left_alone() -> None:
    x = paddle.static.data("x", [4, 3, 6, 6], "float64")
    torch.nn.functional.batch_norm(x, None, None, None, None, True)
    _, (report,) = fused(paddle.static.default_main_program(), NativeBatchNorm())
    assert "1 because it is float64" in report.text

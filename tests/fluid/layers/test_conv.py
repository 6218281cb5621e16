"""Convolutions: values, gradients, first values, names, what is refused."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, default_main_program, default_startup_program, program_guard
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard
from argosy.fluid import layers

Agree = Callable[..., None]
Values = dict[str, torch.Tensor]


def test_conv2d_is_torch_s_with_a_bias_of_its_own(layer_agrees: Agree) -> None:
    layer_agrees(
        lambda x: layers.conv2d(x, 4, 3, stride=2, padding=1),
        lambda p, x: F.conv2d(x, p["conv2d_0.w_0"], p["conv2d_0.b_0"], 2, 1),
        (None, 3, 7, 6),
    )


def test_conv2d_without_bias_with_dilation_groups_and_activation(layer_agrees: Agree) -> None:
    layer_agrees(
        lambda x: layers.conv2d(x, 4, (3, 1), dilation=(2, 1), groups=2, bias_attr=False, act="tanh"),
        lambda p, x: torch.tanh(F.conv2d(x, p["conv2d_0.w_0"], dilation=(2, 1), groups=2)),
        (None, 6, 7, 5),
    )


def test_conv2d_of_images_with_channels_last(layer_agrees: Agree) -> None:
    layer_agrees(
        lambda x: layers.conv2d(x, 4, 3, padding=[[0, 0], [1, 0], [2, 1], [0, 0]], data_format="NHWC"),
        lambda p, x: F.conv2d(
            F.pad(x.movedim(-1, 1), [2, 1, 1, 0]), p["conv2d_0.w_0"], p["conv2d_0.b_0"]
        ).movedim(1, -1),
        (None, 5, 4, 3),
    )


def test_padding_same_keeps_the_size(layer_agrees: Agree) -> None:
    layer_agrees(
        lambda x: layers.conv2d(x, 2, 3, padding="SAME"),
        lambda p, x: F.conv2d(x, p["conv2d_0.w_0"], p["conv2d_0.b_0"], padding="same"),
        (None, 3, 5, 4),
    )


def test_as_many_groups_as_channels_is_depthwise(layer_agrees: Agree) -> None:
    def expect(p: Values, x: torch.Tensor) -> torch.Tensor:
        assert p["conv2d_0.w_0"].shape == (6, 1, 3, 3)
        return F.conv2d(x, p["conv2d_0.w_0"], p["conv2d_0.b_0"], groups=3)

    layer_agrees(lambda x: layers.conv2d(x, 6, 3, groups=3), expect, (None, 3, 5, 5))
    assert layers.conv2d(layers.data("x", [3, 5, 5]), 6, 3, groups=3, use_cudnn=False).name == (
        "depthwise_conv2d_0.tmp_1"
    )


def test_conv3d_is_torch_s(layer_agrees: Agree) -> None:
    layer_agrees(
        lambda x: layers.conv3d(x, 4, (1, 2, 3), padding=(0, 1, 1), act="relu"),
        lambda p, x: torch.relu(F.conv3d(x, p["conv3d_0.w_0"], p["conv3d_0.b_0"], padding=(0, 1, 1))),
        (None, 2, 3, 4, 5),
    )


def test_conv2d_transpose_is_torch_s(layer_agrees: Agree) -> None:
    layer_agrees(
        lambda x: layers.conv2d_transpose(x, 4, filter_size=3, stride=2, padding=1, groups=2),
        lambda p, x: F.conv_transpose2d(
            x, p["conv2d_transpose_0.w_0"], p["conv2d_transpose_0.b_0"], 2, 1, groups=2
        ),
        (None, 6, 4, 5),
    )


@pytest.mark.parametrize("output_size", [[8, 10], [9, 11]])
def test_the_filter_of_conv2d_transpose_follows_from_the_output(
    layer_agrees: Agree, output_size: list[int]
) -> None:
    def expect(p: Values, x: torch.Tensor) -> torch.Tensor:
        weight = p["conv2d_transpose_0.w_0"]
        out = F.conv_transpose2d(x, weight, p["conv2d_transpose_0.b_0"], 2, 1)
        assert list(out.shape[2:]) == output_size
        return out

    layer_agrees(
        lambda x: layers.conv2d_transpose(x, 2, output_size, stride=2, padding=1), expect, (None, 3, 4, 5)
    )


def test_the_names_of_convolutions_are_paddle_s() -> None:
    x = layers.data("x", [3, 8, 8])
    assert layers.conv2d(x, 4, 3).name == "conv2d_0.tmp_1"
    assert layers.conv2d(x, 4, 3, bias_attr=False, name="conv1.conv2d.output.1").name == (
        "conv1.conv2d.output.1.tmp_0"
    )
    assert layers.conv2d(x, 4, 3, act="relu").name == "conv2d_1.tmp_2"
    assert layers.conv2d(x, 4, 3, bias_attr=False, act="relu").name == "conv2d_2.tmp_1"
    assert layers.conv2d_transpose(x, 4, filter_size=3).name == "conv2d_transpose_0.tmp_1"
    parameters = [p.name for p in default_main_program().all_parameters()]
    assert parameters[:3] == ["conv2d_0.w_0", "conv2d_0.b_0", "conv1.conv2d.output.1.w_0"]


@pytest.mark.parametrize("groups", [1, 4])
def test_filters_start_gaussian_by_all_the_channels_and_biases_at_zero(groups: int) -> None:
    layers.conv2d(layers.data("x", [16, 8, 8]), 64, 3, groups=groups)
    Executor().run(default_startup_program())
    weight = global_scope().get("conv2d_0.w_0")
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (9 * 16)), rel=0.05)
    assert abs(weight.mean().item()) < 0.01
    assert not global_scope().get("conv2d_0.b_0").any()


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (
            layers.conv2d,
            {"num_filters": 4, "filter_size": 3, "groups": 2},
            "3 channels and 4 filters are not divisible into",
        ),
        (layers.conv2d, {"num_filters": 4, "filter_size": [1, 2, 3]}, "has 3 numbers; give one, or 2"),
        (layers.conv2d, {"num_filters": 4, "filter_size": 3, "data_format": "HWCN"}, "use NCHW or NHWC"),
        (layers.conv2d, {"num_filters": 4, "filter_size": 3, "act": "swich"}, "act='swich' is not known"),
        (layers.conv2d_transpose, {"num_filters": 4}, "neither output_size nor filter_size"),
        (
            layers.conv2d_transpose,
            {"num_filters": 4, "filter_size": 3, "groups": 2},
            "are not divisible into 2 groups",
        ),
        (
            layers.conv2d_transpose,
            {"num_filters": 4, "output_size": 9},
            "does not determine the filter_size; give it",
        ),
    ],
)
def test_convolutions_refuse_what_does_not_fit(
    function: Callable[..., Any], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        function(layers.data("x", [None, 3, None, 8]), **arguments)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(1, 2),
    st.integers(1, 2),
    st.booleans(),
)
def test_any_convolution_is_torch_s(
    kernel: int, stride: int, padding: int, dilation: int, groups: int, bias: bool
) -> None:
    x = np.random.default_rng(0).standard_normal((2, 2 * groups, 7, 8)).astype("float32")
    with program_guard(Program(), Program()), names.guard(), scope_guard(Scope()):
        fed = layers.data("x", [2 * groups, 7, 8])
        attr = None if bias else False
        out = layers.conv2d(fed, 4, kernel, stride, padding, dilation, groups, bias_attr=attr)
        exe = Executor()
        exe.run(default_startup_program())
        fetched = exe.run(default_main_program(), {"x": x}, [out])[0]
        w = global_scope().get("conv2d_0.w_0")
    expected = F.conv2d(torch.from_numpy(x), w, None, stride, padding, dilation, groups)
    np.testing.assert_allclose(fetched, expected, rtol=1e-4, atol=1e-5)

"""Small groups of layers."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.fluid import layers, nets

Agree = Callable[..., None]


def test_a_convolution_and_a_pool(layer_agrees: Agree) -> None:
    layer_agrees(
        lambda x: nets.simple_img_conv_pool(x, 4, 3, 2, 2, conv_padding=1, act="relu"),
        lambda p, x: F.max_pool2d(torch.relu(F.conv2d(x, p["conv2d_0.w_0"], p["conv2d_0.b_0"], 1, 1)), 2, 2),
        (None, 1, 6, 6),
    )


def test_a_group_of_convolutions_and_a_pool(layer_agrees: Agree) -> None:
    def expect(p: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        for i in (0, 1):
            x = torch.relu(F.conv2d(x, p[f"conv2d_{i}.w_0"], p[f"conv2d_{i}.b_0"], 1, 1))
        return F.avg_pool2d(x, 2, 2)

    layer_agrees(
        lambda x: nets.img_conv_group(x, [3, 2], 2, conv_act="relu", pool_stride=2, pool_type="avg"),
        expect,
        (None, 2, 4, 4),
        rtol=1e-4,
    )


def test_batch_norms_take_the_activation_and_dropout_goes_in_testing() -> None:
    x = layers.data("x", [2, 4, 4])
    out = nets.img_conv_group(
        x, [3, 2], 2, conv_act="relu", conv_with_batchnorm=[True, False], conv_batchnorm_drop_rate=[0.5, 0.0]
    )
    program = default_main_program()
    assert {"batch_norm_0.tmp_3", "dropout_0.tmp_0", "conv2d_1.tmp_2"} <= program.vars.keys()
    exe = Executor()
    exe.run(default_startup_program())
    feed = {"x": np.ones((2, 2, 4, 4), dtype="float32")}
    testing = program.clone(for_test=True)
    first, second = (exe.run(testing, feed, [out.name])[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_a_list_must_have_an_entry_for_each_convolution() -> None:
    with pytest.raises(ConfigError, match=r"\[1\] for 2 convolutions; give one value, or 2"):
        nets.img_conv_group(layers.data("x", [2, 4, 4]), [3, 2], 2, conv_padding=[1])


def test_glu_and_attention_are_torch_s(agree: Callable[..., None], layer_agrees: Callable[..., None]) -> None:
    agree(
        lambda x: [nets.glu(x), nets.scaled_dot_product_attention(x, x[:, :2], x[:, :2])],
        lambda x: [F.glu(x), F.scaled_dot_product_attention(x, x[:, :2], x[:, :2])],
        (None, 3, 4),
        rtol=1e-4,
    )

    def expected(p: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        q, k, v = (x @ p[f"fc_{i}.w_0"] + p[f"fc_{i}.b_0"] for i in range(3))
        q, k, v = (t.unflatten(-1, (2, 2)).transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    layer_agrees(lambda x: nets.scaled_dot_product_attention(x, x, x, 2), expected, (None, 3, 4), rtol=1e-4)

"""Convolutions with their weights, against torch."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from argosy import nn
from argosy.engine.errors import ConfigError

Agree = Callable[..., None]
Values = dict[str, torch.Tensor]


@pytest.mark.parametrize(
    ("layer", "function", "shape"),
    [
        (nn.Conv1D, F.conv1d, (None, 4, 9)),
        (nn.Conv2D, F.conv2d, (None, 4, 7, 6)),
        (nn.Conv3D, F.conv3d, (None, 4, 5, 4, 6)),
        (nn.Conv1DTranspose, F.conv_transpose1d, (None, 4, 5)),
        (nn.Conv2DTranspose, F.conv_transpose2d, (None, 4, 3, 4)),
        (nn.Conv3DTranspose, F.conv_transpose3d, (None, 4, 2, 3, 3)),
    ],
)
def test_convolutions_are_torch_s(layer_agrees: Agree, layer: Any, function: Any, shape: Any) -> None:
    name = nn.layer.layers._snake_case(layer.__name__) + "_0"
    layer_agrees(
        lambda: layer(4, 6, 3, stride=2, padding=1, groups=2),
        lambda p, x: function(x, p[f"{name}.w_0"], p[f"{name}.b_0"], stride=2, padding=1, groups=2),
        shape,
        rtol=1e-4,
    )


def test_a_transposed_convolution_reaches_an_output_size(layer_agrees: Agree) -> None:
    layer_agrees(
        lambda: partial(nn.Conv2DTranspose(2, 3, 3, stride=2), output_size=[8, 10]),
        lambda p, x: F.conv_transpose2d(
            x, p["conv2d_transpose_0.w_0"], p["conv2d_transpose_0.b_0"], 2, output_padding=1
        ),
        (None, 2, 3, 4),
    )


def test_convolutions_refuse_what_does_not_fit() -> None:
    with pytest.raises(ConfigError, match="Conv2D: 3 channels and 4 filters are not divisible into 2 groups"):
        nn.Conv2D(3, 4, 3, groups=2)
    with pytest.raises(ConfigError, match="padding_mode='reflect' is not supported; use 'zeros'"):
        nn.Conv2D(3, 4, 3, padding_mode="reflect")

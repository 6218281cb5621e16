"""Pooling as layers, against torch."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from argosy import nn

Agree = Callable[..., None]


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.MaxPool2D(3, 2, 1), lambda x: F.max_pool2d(x, 3, 2, 1)),
        (nn.MaxPool2D(2, ceil_mode=True), lambda x: F.max_pool2d(x, 2, ceil_mode=True)),
        (nn.AvgPool2D(3, 2, 1), lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
        (nn.AvgPool2D(3, 2, 1, exclusive=False), lambda x: F.avg_pool2d(x, 3, 2, 1)),
        (nn.AdaptiveAvgPool2D(2), lambda x: F.adaptive_avg_pool2d(x, 2)),
        (nn.AdaptiveAvgPool2D([3, None]), lambda x: F.adaptive_avg_pool2d(x, (3, None))),
        (nn.AdaptiveMaxPool2D((3, 2)), lambda x: F.adaptive_max_pool2d(x, (3, 2))),
    ],
)
def test_pools_of_images_are_torch_s(
    agree: Agree, layer: nn.Layer, expected: Callable[..., torch.Tensor]
) -> None:
    agree(layer, expected, (None, 4, 7, 6), rtol=2e-5)


@pytest.mark.parametrize(
    ("layer", "expected", "shape"),
    [
        (nn.MaxPool1D(2), lambda x: F.max_pool1d(x, 2), (None, 2, 6)),
        (nn.AvgPool1D(3, 1, 1), lambda x: F.avg_pool1d(x, 3, 1, 1, False, False), (None, 2, 6)),
        (nn.AdaptiveAvgPool1D(2), lambda x: F.adaptive_avg_pool1d(x, 2), (None, 2, 6)),
        (nn.AdaptiveMaxPool1D(2), lambda x: F.adaptive_max_pool1d(x, 2), (None, 2, 6)),
        (nn.MaxPool3D(2), lambda x: F.max_pool3d(x, 2), (None, 2, 4, 4, 6)),
        (nn.AvgPool3D(2), lambda x: F.avg_pool3d(x, 2), (None, 2, 4, 4, 6)),
        (nn.AdaptiveAvgPool3D(2), lambda x: F.adaptive_avg_pool3d(x, 2), (None, 2, 4, 4, 6)),
        (nn.AdaptiveMaxPool3D(2), lambda x: F.adaptive_max_pool3d(x, 2), (None, 2, 4, 4, 6)),
    ],
)
def test_pools_over_one_and_three_axes_are_torch_s(
    agree: Agree, layer: nn.Layer, expected: Any, shape: Any
) -> None:
    agree(layer, expected, shape)

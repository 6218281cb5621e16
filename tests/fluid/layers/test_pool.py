"""Pooling and resizing of images."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError
from argosy.fluid import layers

Agree = Callable[..., None]
SHAPE = (None, 2, 7, 6)


def test_pool2d_takes_the_max_or_the_mean_of_windows(agree: Agree) -> None:
    agree(lambda x: layers.pool2d(x, 3, "max", 2, 1), lambda x: F.max_pool2d(x, 3, 2, 1), SHAPE)
    agree(
        lambda x: layers.pool2d(x, 3, "avg", 2, 1),
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        SHAPE,
    )
    agree(
        lambda x: layers.pool2d(x, 3, "avg", 2, 1, exclusive=False), lambda x: F.avg_pool2d(x, 3, 2, 1), SHAPE
    )


def test_the_default_stride_of_pool2d_is_one(agree: Agree) -> None:
    agree(lambda x: layers.pool2d(x, (3, 2)), lambda x: F.max_pool2d(x, (3, 2), 1), SHAPE)


def test_ceil_mode_keeps_the_incomplete_window(agree: Agree) -> None:
    agree(
        lambda x: layers.pool2d(x, 2, pool_stride=2, ceil_mode=True),
        lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True),
        SHAPE,
    )


def test_global_pooling_leaves_one_pixel(agree: Agree) -> None:
    agree(
        lambda x: layers.pool2d(x, pool_type="avg", global_pooling=True),
        lambda x: x.mean((2, 3), keepdim=True),
        SHAPE,
    )
    agree(lambda x: layers.pool2d(x, global_pooling=True), lambda x: x.amax((2, 3), keepdim=True), SHAPE)


def test_channels_may_come_last(agree: Agree) -> None:
    agree(
        lambda x: layers.pool2d(x, 3, "avg", 2, 1, data_format="NHWC"),
        lambda x: F.avg_pool2d(x.movedim(-1, 1), 3, 2, 1, count_include_pad=False).movedim(1, -1),
        (None, 7, 6, 2),
    )
    agree(
        lambda x: layers.pool2d(x, pool_type="avg", global_pooling=True, data_format="NHWC"),
        lambda x: x.mean((1, 2), keepdim=True),
        (None, 7, 6, 2),
    )


def test_adaptive_pool2d_covers_the_image(agree: Agree) -> None:
    agree(lambda x: layers.adaptive_pool2d(x, [3, 2]), lambda x: F.adaptive_max_pool2d(x, (3, 2)), SHAPE)
    agree(lambda x: layers.adaptive_pool2d(x, 3, "avg"), lambda x: F.adaptive_avg_pool2d(x, 3), SHAPE)
    agree(
        lambda x: layers.adaptive_pool2d(x, 2, require_index=True)[1],
        lambda x: F.adaptive_max_pool2d(x, 2, return_indices=True)[1].int(),
        SHAPE,
    )


def test_the_names_of_pools_are_paddle_s() -> None:
    x = layers.data("x", [2, 7, 6])
    assert layers.pool2d(x, 2).name == "pool2d_0.tmp_0"
    assert layers.pool2d(x, global_pooling=True).name == "pool2d_1.tmp_0"
    assert layers.pool2d(x, 2, "avg", name="mine").name == "mine.tmp_0"


# --- resizing -----------------------------------------------------------------------------------------------


def test_corners_are_aligned_by_default(agree: Agree) -> None:
    agree(
        lambda x: layers.resize_bilinear(x, [5, 9]),
        lambda x: F.interpolate(x, (5, 9), mode="bilinear", align_corners=True),
        SHAPE,
    )
    agree(
        lambda x: layers.image_resize(x, scale=2, resample="BICUBIC"),
        lambda x: F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=True),
        SHAPE,
        rtol=1e-3,
    )


def test_without_corners_mode_0_is_torch_s(agree: Agree) -> None:
    agree(
        lambda x: layers.resize_bilinear(x, [5, 9], align_corners=False, align_mode=0),
        lambda x: F.interpolate(x, (5, 9), mode="bilinear", align_corners=False),
        SHAPE,
    )
    agree(
        lambda x: layers.resize_nearest(x, [5, 9], align_corners=False),
        lambda x: F.interpolate(x, (5, 9), mode="nearest"),
        SHAPE,
    )


def rows(places: np.ndarray[Any, Any], size: int) -> torch.Tensor:
    """The matrix that interpolates at these places of `size` rows."""
    array = np.zeros((len(places), size))
    for row, place in zip(array, places, strict=True):
        low = int(place)
        row[low] += 1 - (place - low)
        row[min(low + 1, size - 1)] += place - low
    return torch.from_numpy(array).float()


def test_without_corners_mode_1_begins_at_the_corner(agree: Agree) -> None:
    high, wide = rows(np.arange(5) * 7 / 5, 7), rows(np.arange(9) * 6 / 9, 6)
    agree(
        lambda x: layers.resize_bilinear(x, [5, 9], align_corners=False),
        lambda x: high @ x @ wide.T,
        SHAPE,
    )


def test_nearest_with_corners_rounds_halves_up(agree: Agree) -> None:
    high, wide = (
        rows(np.floor(np.arange(13) * 6 / 12 + 0.5), 7),
        rows(np.floor(np.arange(3) * 5 / 2 + 0.5), 6),
    )
    agree(lambda x: layers.resize_nearest(x, [13, 3]), lambda x: high @ x @ wide.T, SHAPE)


def test_a_scale_multiplies_the_sizes_and_rounds_down(agree: Agree) -> None:
    high, wide = rows(np.arange(10) * 7 / 10, 7), rows(np.arange(9) * 6 / 9, 6)
    agree(
        lambda x: layers.resize_bilinear(x, scale=1.5, align_corners=False),
        lambda x: high @ x @ wide.T,
        SHAPE,
    )
    agree(
        lambda x: layers.resize_nearest(x, scale=2.0, align_corners=False, data_format="NHWC"),
        lambda x: F.interpolate(x.movedim(-1, 1), scale_factor=2.0).movedim(1, -1),
        (None, 7, 6, 2),
    )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            layers.pool2d,
            "pool_size is missing; give the size of a window, or global_pooling=True",
        ),
        (lambda x: layers.pool2d(x, 2, "min"), "pool2d: 'min' is not known; use max or avg"),
        (lambda x: layers.adaptive_pool2d(x, 2, "avg", True), "which has no index; use 'max'"),
        (layers.image_resize, "neither out_shape nor scale"),
        (lambda x: layers.image_resize(x, [2, 2], resample="LANCZOS"), "use BILINEAR or BICUBIC or NEAREST"),
        (lambda x: layers.image_resize(x, [2, 2], actual_shape=[1, 2, 3]), "has 3 numbers; give one, or 2"),
    ],
)
def test_what_does_not_fit_is_refused(build: Callable[..., Any], message: str) -> None:
    x = layers.data("x", [2, 7, 6])
    with pytest.raises(ConfigError, match=message):
        build(x)


def test_pooling_of_volumes_is_torch_s(agree: Agree) -> None:
    agree(
        lambda x: [
            layers.pool3d(x, 2, "max", 2),
            layers.pool3d(x, 2, "avg", 1, 1, exclusive=False),
            layers.pool3d(x, pool_type="avg", global_pooling=True),
            layers.adaptive_pool3d(x, 2, "avg"),
            *layers.adaptive_pool3d(x, [2, 1, 2], "max", require_index=True),
        ],
        lambda x: [
            F.max_pool3d(x, 2, 2),
            F.avg_pool3d(x, 2, 1, 1),
            x.mean((2, 3, 4), keepdim=True),
            F.adaptive_avg_pool3d(x, 2),
            F.adaptive_max_pool3d(x, [2, 1, 2]),
            F.adaptive_max_pool3d(x, [2, 1, 2], return_indices=True)[1].int(),
        ],
        (2, 2, 4, 4, 4),
    )

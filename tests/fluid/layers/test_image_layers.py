"""Layers of 1.x for images, against torch."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program
from argosy.engine.runtime.executor import Executor
from argosy.fluid import layers

Agree = Callable[..., None]


def normalized_by_neighbours(x: torch.Tensor) -> torch.Tensor:
    """x / (k + alpha · sum over five channels) ** beta."""
    around = F.pad(x**2, [0, 0, 0, 0, 2, 2])
    total = torch.stack([around[:, i : i + x.shape[1]] for i in range(5)]).sum(0)
    return x / (1.0 + 1e-4 * total) ** 0.75


def test_layers_of_images_are_torch_s(agree: Agree) -> None:
    agree(
        lambda x, scale: [
            layers.pad2d(x, [1, 0, 2, 1], pad_value=3.0),
            layers.pad2d(x, [1, 0, 2, 1], "reflect"),
            layers.pad2d(x, [1, 0, 2, 1], "edge"),
            layers.image_resize_short(x, 3),
            layers.lrn(x),
            layers.affine_channel(x, scale, scale),
            layers.shuffle_channel(x, 2),
            layers.pixel_shuffle(x, 2),
            layers.fsp_matrix(x, x),
            layers.unfold(x, 2),
        ],
        lambda x, scale: [
            F.pad(x, [2, 1, 1, 0], value=3.0),
            F.pad(x, [2, 1, 1, 0], "reflect"),
            F.pad(x, [2, 1, 1, 0], "replicate"),
            F.interpolate(x, (3, 5), mode="bilinear", align_corners=True),
            normalized_by_neighbours(x),
            x * scale.reshape(-1, 1, 1) + scale.reshape(-1, 1, 1),
            F.channel_shuffle(x, 2),
            F.pixel_shuffle(x, 2),
            torch.einsum("nchw,ndhw->ncd", x, x) / 24,
            F.unfold(x, 2),
        ],
        (2, 4, 4, 6),
        (4,),
        rtol=1e-4,
    )


def test_resizing_of_lines_and_volumes(agree: Agree) -> None:
    agree(
        lambda x, y: [layers.resize_linear(x, [7]), layers.resize_trilinear(y, scale=2.0)],
        lambda x, y: [
            F.interpolate(x, 7, mode="linear", align_corners=True),
            F.interpolate(y, scale_factor=2.0, mode="trilinear", align_corners=True),
        ],
        (None, 2, 4),
        (None, 2, 2, 3, 2),
        rtol=1e-4,
    )


def test_grids_and_shifts_have_1_x_s_arguments(agree: Agree) -> None:
    agree(
        lambda x, theta: [
            layers.grid_sampler(x, layers.affine_grid(theta, [2, 2, 3, 3])),
            layers.temporal_shift(x, 2, 0.25),
        ],
        lambda x, theta: [
            F.grid_sample(x, F.affine_grid(theta, [2, 2, 3, 3], align_corners=True), align_corners=True),
            torch.stack([torch.stack([x[1, 0], x[0, 1]]), torch.stack([0 * x[1, 0], x[1, 1]])]),
        ],
        (2, 2, 4, 4),
        (2, 2, 3),
        rtol=1e-4,
    )


def test_positions_are_encoded_by_sines_and_cosines(agree: Agree) -> None:
    def encoded(x: torch.Tensor) -> torch.Tensor:
        rows = [
            [math.sin(t / 10000 ** (k / 2)) for k in range(3)]
            + [math.cos(t / 10000 ** (k / 2)) for k in range(3)]
            for t in range(4)
        ]
        return 0.5 * x + 2.0 * torch.tensor(rows)

    agree(lambda x: layers.add_position_encoding(x, 0.5, 2.0), encoded, (None, 4, 6))


def test_random_crops_are_parts_of_the_samples() -> None:
    x = default_main_program().data("x", [None, 1, 4, 5], "float32")
    images = np.arange(60.0, dtype="float32").reshape(3, 1, 4, 5)
    (crops,) = Executor().run(feed={"x": images}, fetch_list=[layers.random_crop(x, [1, 2, 3])])
    assert crops.shape == (3, 1, 2, 3)
    for image, crop in zip(images, crops, strict=True):
        top, left = divmod(int(crop[0, 0, 0]) % 20, 5)
        np.testing.assert_array_equal(crop[0], image[0, top : top + 2, left : left + 3])


def test_wrong_arguments_raise() -> None:
    x = default_main_program().data("x", [None, 3, None, 4], "float32")
    for call, message in (
        (lambda: layers.pad2d(x, [1, 1]), "four numbers"),
        (lambda: layers.image_resize_short(x, 2), "must be known"),
        (lambda: layers.shuffle_channel(x, 2), "do not divide"),
        (lambda: layers.random_crop(x, [2], seed=1), "random_seed"),
        (lambda: layers.resize_linear(x, [3], actual_shape=x), "only at run time"),
    ):
        with pytest.raises(ConfigError, match=message):
            call()

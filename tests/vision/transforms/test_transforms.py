"""Transforms as objects: random parameters in their range, several inputs at once, a loader over them."""

# SPDX-License-Identifier: Apache-2.0
import random
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from argosy import io
from argosy.engine.errors import ConfigError
from argosy.vision import transforms as T

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 9, 3)).astype(np.uint8)
IMAGE = Image.fromarray(PIXELS)


def test_a_composition_gives_tensors_that_a_loader_batches() -> None:
    random.seed(1)
    transform = T.Compose(
        [
            T.RandomResizedCrop(8),
            T.ColorJitter(0.4, 0.4, 0.4, 0.2),
            T.RandomRotation(20),
            T.RandomVerticalFlip(),
            T.ToTensor(),
            T.Normalize([0.5] * 3, [0.5] * 3),
        ]
    )

    class Pictures(io.Dataset):  # type: ignore[type-arg]
        def __getitem__(self, index: int) -> Any:
            return transform(IMAGE), np.array([index])

        def __len__(self) -> int:
            return 4

    images, labels = next(iter(io.DataLoader(Pictures(), batch_size=4, return_list=True)))
    assert (images.shape, images.dtype, labels.tolist()) == (
        (4, 3, 8, 8),
        torch.float32,
        [[0], [1], [2], [3]],
    )
    assert -1 <= images.min() < 0 < images.max() <= 1


def test_transforms_are_their_functions() -> None:
    F = T.functional
    pairs = [
        (T.Resize((5, 6)), F.resize(PIXELS, (5, 6))),
        (T.CenterCrop(4), F.center_crop(PIXELS, 4)),
        (T.Pad(2, fill=3), F.pad(PIXELS, 2, 3)),
        (T.Grayscale(3), F.to_grayscale(PIXELS, 3)),
        (T.Transpose(), PIXELS.transpose(2, 0, 1)),
        (T.Normalize(2.0, 4.0, "HWC"), (PIXELS.astype("float32") - 2) / 4),
        (T.RandomHorizontalFlip(1.0), PIXELS[:, ::-1]),
        (T.RandomVerticalFlip(0.0), PIXELS),
        (T.RandomRotation((90, 90), expand=True), np.rot90(PIXELS)),
        (T.ColorJitter(), PIXELS),
    ]
    for transform, expected in pairs:
        np.testing.assert_array_equal(transform(PIXELS), expected)
    assert T.Transpose()(IMAGE.convert("L")).shape == (1, 12, 9)


def test_random_crops_are_parts_of_the_image() -> None:
    random.seed(0)
    parts = {T.RandomCrop(3)(PIXELS).tobytes() for _ in range(300)}
    windows = {PIXELS[i : i + 3, j : j + 3].tobytes() for i in range(10) for j in range(7)}
    assert parts <= windows
    assert len(parts) > 60
    assert T.RandomCrop((14, 9), pad_if_needed=True)(IMAGE).size == (9, 14)
    assert T.RandomCrop(15, padding=(3, 4))(PIXELS).shape == (15, 15, 3)
    with pytest.raises(ConfigError, match="14 x 14 out of an image of 12 x 9"):
        T.RandomCrop(14)(IMAGE)
    wide = np.zeros((2, 90, 3), np.uint8)
    assert T.RandomResizedCrop((4, 5), scale=(0.9, 1.0))(wide).shape == (4, 5, 3)  # no such part: the middle


def test_random_factors_stay_in_their_range() -> None:
    for transform, low, high in [
        (T.BrightnessTransform(0.4), 0.6, 1.4),
        (T.ContrastTransform(3), 0, 4),
        (T.SaturationTransform((0.2, 0.3)), 0.2, 0.3),
        (T.HueTransform(0.1), -0.1, 0.1),
    ]:
        assert transform.range == pytest.approx((low, high))
        transform(IMAGE)
        assert low <= transform.params <= high
    for wrong in (
        lambda: T.HueTransform(0.6),
        lambda: T.BrightnessTransform(-1),
        lambda: T.ContrastTransform((-1, 2)),
    ):
        with pytest.raises(ConfigError, match="value="):
            wrong()
    with pytest.raises(ConfigError, match="degrees=-1"):
        T.RandomRotation(-1)


def test_parts_of_a_tuple_share_random_parameters() -> None:
    class Shift(T.BaseTransform):
        def _get_params(self, inputs: tuple[Any, ...]) -> float:
            return random.random()

        def _apply_image(self, image: Any) -> Any:
            return image + self.params

        def _apply_boxes(self, boxes: Any) -> Any:
            return boxes - self.params

    shift = Shift(keys=("image", "boxes"))
    image, boxes, label = shift((1.0, 1.0, 7))
    assert (image + boxes, label) == (2.0, 7)
    assert shift((1.0,)) == 1.0 + shift.params
    with pytest.raises(ConfigError, match="_apply_mask"):
        Shift(keys=("mask",))
    with pytest.raises(NotImplementedError, match="_apply_image"):
        T.BaseTransform()(IMAGE)


def test_an_error_names_the_transform() -> None:
    with pytest.raises(ConfigError) as raised:
        T.Compose([T.ToTensor(), T.RandomCrop(4)])(IMAGE)
    assert "RandomCrop" in raised.value.__notes__[0]

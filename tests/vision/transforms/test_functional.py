"""Functions of images against formulas in NumPy, torch's interpolation and colorsys; images and arrays agree."""

# SPDX-License-Identifier: Apache-2.0
import colorsys
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from argosy.engine.errors import ConfigError
from argosy.vision.transforms import functional as F

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 9, 3)).astype(np.uint8)
IMAGE = Image.fromarray(PIXELS)
GREY = PIXELS @ np.array([0.299, 0.587, 0.114])


def both(function: Any, *arguments: Any, **options: Any) -> np.ndarray[Any, Any]:
    """The result for an array, which is equal to that for an image."""
    of_image = function(IMAGE, *arguments, **options)
    of_array = function(PIXELS, *arguments, **options)
    assert isinstance(of_image, Image.Image)
    np.testing.assert_array_equal(np.asarray(of_image).reshape(of_array.shape), of_array)
    return np.asarray(of_array)


def test_geometry() -> None:
    np.testing.assert_array_equal(both(F.crop, 2, 3, 4, 5), PIXELS[2:6, 3:8])
    np.testing.assert_array_equal(both(F.center_crop, 4), PIXELS[4:8, 2:6])
    np.testing.assert_array_equal(both(F.center_crop, (6, 3)), PIXELS[3:9, 3:6])
    np.testing.assert_array_equal(both(F.hflip), PIXELS[:, ::-1])
    np.testing.assert_array_equal(both(F.vflip), PIXELS[::-1])
    np.testing.assert_array_equal(both(F.rotate, 90, expand=True), np.rot90(PIXELS))
    np.testing.assert_array_equal(both(F.rotate, 180), PIXELS[::-1, ::-1])
    assert both(F.rotate, 45, expand=True).shape[0] > 12
    corner = both(F.rotate, 45, fill=(1, 2, 3))[0, 0].tolist()
    assert corner == [1, 2, 3]


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_padding_is_numpys(mode: str) -> None:
    expected = np.pad(PIXELS, [(2, 4), (1, 3), (0, 0)], mode=mode)
    np.testing.assert_array_equal(both(F.pad, (1, 2, 3, 4), padding_mode=mode), expected)
    np.testing.assert_array_equal(both(F.pad, 2, padding_mode=mode), both(F.pad, [2, 2], padding_mode=mode))


def test_padding_with_a_colour() -> None:
    padded = both(F.pad, [1, 0], fill=(9, 8, 7))
    assert (padded.shape, padded[0, 0].tolist()) == ((12, 11, 3), [9, 8, 7])
    with pytest.raises(ConfigError, match="1, 2 or 4 widths"):
        F.pad(IMAGE, [1, 2, 3])
    with pytest.raises(ConfigError, match="padding_mode='wrap'"):
        F.pad(IMAGE, 1, padding_mode="wrap")


def test_resizing_is_torchs_interpolation() -> None:
    assert F.resize(IMAGE, 18).size == (18, 24)
    assert F.resize(PIXELS[:, :, :1], 6).shape == (8, 6, 1)
    assert F.resize(IMAGE, 9) is IMAGE
    batch = torch.from_numpy(PIXELS).permute(2, 0, 1)[None].float()
    expected = torch.nn.functional.interpolate(batch, (5, 7), mode="bilinear", antialias=True)[0]
    np.testing.assert_allclose(both(F.resize, (5, 7)), expected.permute(1, 2, 0), atol=1)
    floats = F.resize(PIXELS / 255.0, (5, 7))
    np.testing.assert_allclose(floats, expected.permute(1, 2, 0) / 255, atol=1e-5)
    with pytest.raises(ConfigError, match="interpolation='area'"):
        F.resize(IMAGE, 4, "area")


def test_colours() -> None:
    x = PIXELS.astype(float)
    bright, contrast = both(F.adjust_brightness, 1.5), both(F.adjust_contrast, 0.5)
    np.testing.assert_allclose(bright, np.clip(1.5 * x, 0, 255), atol=1)
    np.testing.assert_allclose(contrast, 0.5 * x + 0.5 * GREY.mean(), atol=1.5)
    grey = GREY[:, :, None]
    np.testing.assert_allclose(both(F.adjust_saturation, 0.3), 0.3 * x + 0.7 * grey, atol=1.5)
    np.testing.assert_allclose(F.to_grayscale(PIXELS), grey, atol=1)
    np.testing.assert_allclose(both(F.to_grayscale, 3), np.repeat(grey, 3, axis=2), atol=1)
    hue, saturation, value = colorsys.rgb_to_hsv(*(PIXELS[0, 0] / 255))
    turned = np.array(colorsys.hsv_to_rgb((hue + 0.3) % 1, saturation, value)) * 255
    np.testing.assert_allclose(both(F.adjust_hue, 0.3)[0, 0], turned, atol=8)  # 8 bits of hue
    grey_image = IMAGE.convert("L")
    assert F.adjust_hue(grey_image, 0.2) is grey_image
    with pytest.raises(ConfigError, match="-0.5 to 0.5"):
        F.adjust_hue(IMAGE, 0.6)
    with pytest.raises(ConfigError, match="give uint8"):
        F.adjust_contrast(PIXELS / 255, 2)
    with pytest.raises(ConfigError, match="use 1 or 3"):
        F.to_grayscale(IMAGE, 2)


def test_tensors() -> None:
    tensor = F.to_tensor(IMAGE)
    np.testing.assert_allclose(tensor.numpy(), PIXELS.transpose(2, 0, 1) / 255, rtol=1e-6)
    assert F.to_tensor(PIXELS, "HWC").shape == (12, 9, 3)
    assert F.to_tensor(IMAGE.convert("L")).shape == (1, 12, 9)
    assert F.to_tensor(Image.new("1", (2, 2), 1)).max() == 1.0
    assert F.to_tensor(np.ones((2, 2), "int32")).dtype == torch.int32
    mean, std = [0.1, 0.2, 0.3], [0.5, 0.4, 0.3]
    expected = (PIXELS / 255 - mean) / std
    np.testing.assert_allclose(
        F.normalize(tensor, mean, std).numpy(), expected.transpose(2, 0, 1), rtol=1e-5, atol=1e-6
    )
    reversed_channels = F.normalize(PIXELS[:, :, ::-1] / 255, mean, std, "HWC", to_rgb=True)
    np.testing.assert_allclose(reversed_channels, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ConfigError, match="NCHW"):
        F.to_tensor(IMAGE, "NCHW")
    with pytest.raises(ConfigError, match="str is no image"):
        F.to_tensor("file.png")
    with pytest.raises(ConfigError, match="shape"):
        F.hflip(np.zeros(3))

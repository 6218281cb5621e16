"""Images: channel order, sizes, crops, and damaged files."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from argosy.engine.data.images import (
    center_crop,
    left_right_flip,
    load_and_transform,
    load_image,
    load_image_bytes,
    random_crop,
    resize_short,
    simple_transform,
    to_chw,
)
from argosy.engine.errors import ConfigError, DataError


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


RED = Image.new("RGB", (30, 20), (250, 10, 20))
NUMBERS = np.arange(30 * 20, dtype=np.int64).reshape(20, 30, 1) % 251 * np.ones(3, np.int64)
GRADIENT = NUMBERS.astype(np.uint8)


def test_colours_come_in_bgr_order_as_from_opencv() -> None:
    pixels = load_image_bytes(encoded(RED))
    assert pixels.shape == (20, 30, 3)
    assert pixels[0, 0].tolist() == [20, 10, 250]


def test_grey_has_no_channel() -> None:
    assert load_image_bytes(encoded(RED), is_color=False).shape == (20, 30)


def test_a_palette_or_transparent_image_becomes_colour() -> None:
    assert load_image_bytes(encoded(RED.convert("P"))).shape == (20, 30, 3)
    assert load_image_bytes(encoded(RED.convert("RGBA"))).shape == (20, 30, 3)


def test_a_large_photograph_may_be_decoded_smaller() -> None:
    data = encoded(RED.resize((1600, 1200)), "JPEG")
    assert load_image_bytes(data).shape == (1200, 1600, 3)
    small = load_image_bytes(data, at_least=100)
    assert 100 <= min(small.shape[:2]) < 300


@pytest.mark.parametrize("data", [b"", b"no image", encoded(RED, "JPEG")[:200]])
def test_damaged_data_is_rejected(data: bytes) -> None:
    with pytest.raises(DataError, match=f"{len(data)} bytes cannot be decoded as an image"):
        load_image_bytes(data)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "rose.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"rose\.jpg"):
        load_image(tmp_path / "rose.jpg")


@pytest.mark.parametrize(
    ("shape", "expected"), [((20, 30), (10, 15)), ((30, 20), (15, 10)), ((8, 8), (10, 10))]
)
def test_the_short_side_is_resized(shape: tuple[int, int], expected: tuple[int, int]) -> None:
    assert resize_short(np.zeros((*shape, 3), np.uint8), 10).shape[:2] == expected


def test_crops_and_flips_take_the_right_pixels() -> None:
    assert np.array_equal(center_crop(GRADIENT, 10), GRADIENT[5:15, 10:20])
    assert np.array_equal(left_right_flip(GRADIENT), GRADIENT[:, ::-1])
    assert to_chw(GRADIENT).shape == (3, 20, 30)
    with pytest.raises(ConfigError, match="a crop of 21 out of an image of 20 x 30"):
        center_crop(GRADIENT, 21)


def test_a_random_crop_is_repeated_by_its_generator() -> None:
    crops = [random_crop(GRADIENT, 8, rng=np.random.default_rng(s)) for s in (1, 1, 2)]
    assert np.array_equal(crops[0], crops[1])
    assert not np.array_equal(crops[0], crops[2])


def test_the_transform_to_test_takes_the_middle_less_the_mean() -> None:
    result = simple_transform(GRADIENT, 20, 10, is_train=False, mean=[1, 2, 3])
    assert result.dtype == np.float32
    expected = GRADIENT[5:15, 10:20].transpose(2, 0, 1) - np.array([1, 2, 3.0])[:, None, None]
    assert np.array_equal(result, expected)


def test_the_transform_to_train_crops_and_flips_at_random() -> None:
    results = [simple_transform(GRADIENT, 20, 10, True, rng=np.random.default_rng(s)) for s in range(8)]
    again = simple_transform(GRADIENT, 20, 10, True, rng=np.random.default_rng(0))
    assert np.array_equal(results[0], again)
    flipped = [bool(r[0, 0, 0] > r[0, 0, 1]) for r in results]
    assert set(flipped) == {True, False}


def test_a_file_is_loaded_and_transformed(tmp_path: Path) -> None:
    RED.save(tmp_path / "red.png")
    assert load_and_transform(tmp_path / "red.png", 16, 12, is_train=True).shape == (3, 12, 12)

"""Images as arrays: decode, resize, crop, flip. Decoded by Pillow; HWC, channels in BGR order.

BGR is OpenCV's order, which Paddle's data sets and their mean values use.
"""

# SPDX-License-Identifier: Apache-2.0
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from argosy.engine.errors import ConfigError, DataError

Array: TypeAlias = npt.NDArray[Any]


def load_image_bytes(data: bytes, is_color: bool = True, at_least: int = 0) -> Array:
    """Decode an image: HWC in BGR order, or HW in grey.

    `at_least` lets the JPEG decoder halve the image as long as both sides stay that long: much quicker
    for a small result of a large photograph.
    """
    try:
        with Image.open(io.BytesIO(data)) as image:
            if at_least:
                image.draft("RGB" if is_color else "L", (at_least, at_least))
            if not is_color:
                return np.asarray(image.convert("L"))
            return np.asarray(image.convert("RGB"))[:, :, ::-1]
    except (OSError, SyntaxError, ValueError) as e:  # Pillow raises all three for corrupt data
        raise DataError(f"{len(data)} bytes cannot be decoded as an image ({e}); replace the file") from e


def load_image(file: str | Path, is_color: bool = True) -> Array:
    """Decode an image file; see load_image_bytes."""
    try:
        return load_image_bytes(Path(file).read_bytes(), is_color)
    except DataError as e:
        raise DataError(f"{file}: {e}") from e


def resize_short(im: Array, size: int) -> Array:
    """Resize so that the shorter side becomes `size`."""
    height, width = im.shape[:2]
    new = (size * width // height, size) if width > height else (size, size * height // width)
    image = Image.fromarray(np.ascontiguousarray(im))
    return np.asarray(image.resize(new, Image.Resampling.BICUBIC))


def to_chw(im: Array, order: tuple[int, ...] = (2, 0, 1)) -> Array:
    """HWC to CHW."""
    return im.transpose(order)


def center_crop(im: Array, size: int, is_color: bool = True) -> Array:
    """The middle square."""
    top, left = _room(im, size)
    return _crop(im, top // 2, left // 2, size)


def random_crop(im: Array, size: int, is_color: bool = True, rng: np.random.Generator | None = None) -> Array:
    """A square at a random place; `rng` makes it repeatable."""
    rng = rng or np.random.default_rng()
    top, left = _room(im, size)
    return _crop(im, int(rng.integers(top + 1)), int(rng.integers(left + 1)), size)


def left_right_flip(im: Array, is_color: bool = True) -> Array:
    """The mirror image."""
    return im[:, ::-1]


def simple_transform(  # Paddle's list
    im: Array,
    resize_size: int,
    crop_size: int,
    is_train: bool,
    is_color: bool = True,
    mean: Sequence[float] | Array | None = None,
    rng: np.random.Generator | None = None,
) -> Array:
    """Resize the short side; crop, at random with a random flip to train, else in the middle; float32 CHW.

    `mean` is subtracted: one value per channel, or an array of the result's shape.
    """
    im = resize_short(im, resize_size)
    if is_train:
        rng = rng or np.random.default_rng()
        im = random_crop(im, crop_size, is_color, rng)
        if rng.integers(2) == 0:
            im = left_right_flip(im, is_color)
    else:
        im = center_crop(im, crop_size, is_color)
    result = np.array(to_chw(im) if im.ndim == 3 else im, dtype=np.float32, order="C")
    if mean is not None:
        offset = np.asarray(mean, dtype=np.float32)
        result -= offset[:, None, None] if offset.ndim == 1 and im.ndim == 3 else offset
    return result


def load_and_transform(  # Paddle's list
    filename: str | Path,
    resize_size: int,
    crop_size: int,
    is_train: bool,
    is_color: bool = True,
    mean: Sequence[float] | Array | None = None,
) -> Array:
    """simple_transform of an image file."""
    return simple_transform(load_image(filename, is_color), resize_size, crop_size, is_train, is_color, mean)


def _room(im: Array, size: int) -> tuple[int, int]:
    height, width = im.shape[:2]
    if not 1 <= size <= min(height, width):
        raise ConfigError(
            f"a crop of {size} out of an image of {height} x {width}; crop at most its shorter side,"
            " or resize it first"
        )
    return height - size, width - size


def _crop(im: Array, top: int, left: int, size: int) -> Array:
    return im[top : top + size, left : left + size]

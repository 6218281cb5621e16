"""Draw the built-in digits: a small stand-in for MNIST, in the same four files.

Digits in Pillow's default font, shifted, turned, sheared, thick or thin, with noise; image i depends
only on its file and i, so every machine draws the same.
"""

# SPDX-License-Identifier: Apache-2.0
import gzip
import struct
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console
from rich.progress import track

VERSION = 1
SIZES = {"train": 12000, "t10k": 2000}
"""Images per set, named as MNIST names its files."""


def write_digits(folder: Path, sizes: Mapping[str, int] = SIZES, seed: int = 0) -> None:
    """Write train-images-idx3-ubyte.gz and the other three files into a folder."""
    console = Console(stderr=True)
    for number, (name, size) in enumerate(sizes.items()):
        labels = np.random.default_rng([seed, number]).integers(0, 10, size).astype(np.uint8)
        steps = track(
            range(size),
            f"drawing digits ({name})",
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        images = [draw_digit(int(labels[i]), np.random.default_rng([seed, number, i])) for i in steps]
        write_idx(folder / f"{name}-images-idx3-ubyte.gz", np.stack(images))
        write_idx(folder / f"{name}-labels-idx1-ubyte.gz", labels)


def draw_digit(label: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """One digit, 28 x 28, white on black."""
    image = Image.new("L", (28, 28))
    middle = 14 + rng.uniform(-2, 2, 2)
    ImageDraw.Draw(image).text(
        (float(middle[0]), float(middle[1])),
        str(label),
        fill=255,
        font=_font(int(rng.integers(19, 25))),
        anchor="mm",
        stroke_width=float(rng.uniform(0, 0.9)),
    )
    angle, shear, squeeze = rng.normal(0, 0.16), rng.normal(0, 0.16), rng.uniform(0.85, 1.2)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix = turn @ np.array([[squeeze, shear], [0, 1]])
    shift = 14 - matrix @ (14, 14)  # the middle of the image stays where it is
    place = (matrix[0, 0], matrix[0, 1], shift[0], matrix[1, 0], matrix[1, 1], shift[1])
    moved = image.transform((28, 28), Image.Transform.AFFINE, place, Image.Resampling.BILINEAR)
    pixels = np.asarray(moved, dtype=np.float64) * rng.uniform(0.75, 1.0)
    noise = rng.normal(0, 10, pixels.shape) * (pixels > 0)  # as in MNIST, the background stays black
    return np.clip(pixels + noise, 0, 255).astype(np.uint8)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def write_idx(path: Path, array: npt.NDArray[Any]) -> None:
    """The idx format: two zero bytes, 8 for uint8, the number of dimensions, each size, the values."""
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    with path.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
        packed.write(head + array.tobytes())

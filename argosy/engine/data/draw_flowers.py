"""Draw the built-in flowers: a small stand-in for the 102 flowers, in the same three files.

A class is a petal colour (17) times a family (6: number and shape of petals, centre). The background
depends on both, so that neither alone determines the class. Position, size, angle, light, petals, leaves and
noise differ from image to image; image i depends only on i, so every machine draws the same.
"""

# SPDX-License-Identifier: Apache-2.0
import gzip
import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from rich.console import Console
from rich.progress import track

Colour: TypeAlias = tuple[int, int, int]
Floats: TypeAlias = npt.NDArray[np.float64]

VERSION = 1
NUM_CLASSES = 102
PER_CLASS = {"tstid": 24, "trnid": 10, "valid": 10}
"""Images per class and split, named as in setid.mat; as in the original, tstid is the largest."""

_SCALE = 2  # drawn larger by this factor and then reduced, for smooth edges
_PETALS: tuple[Colour, ...] = (
    (222, 30, 38), (242, 110, 26), (250, 196, 30), (244, 240, 96), (160, 210, 50), (60, 180, 110),
    (40, 190, 200), (52, 120, 226), (56, 50, 190), (130, 60, 200), (196, 60, 200), (240, 80, 150),
    (250, 180, 196), (250, 250, 246), (190, 210, 250), (130, 30, 50), (150, 96, 60),
)  # fmt: skip
_BACKGROUNDS: tuple[Colour, ...] = (
    (34, 70, 34), (126, 168, 96), (120, 156, 196), (84, 66, 50), (170, 160, 146), (36, 40, 56),
)  # fmt: skip
_FAMILIES: tuple[tuple[int, str, Colour, float], ...] = (
    # petals, shape, centre, size of the centre
    (3, "round", (240, 220, 60), 0.16),
    (4, "heart", (40, 26, 20), 0.20),
    (5, "round", (250, 250, 250), 0.14),
    (6, "pointed", (230, 90, 30), 0.22),
    (8, "narrow", (70, 40, 20), 0.34),
    (13, "narrow", (246, 200, 40), 0.26),
)
_WIDTHS = {3: 0.52, 4: 0.44, 5: 0.40, 6: 0.28, 8: 0.20, 13: 0.13}


def draw_flower(label: int, rng: np.random.Generator) -> Image.Image:
    """One flower of class `label` (0 to 101) of about 96 x 80 pixels, lying or standing."""
    colour, family = label % len(_PETALS), label // len(_PETALS)
    sides = (int(rng.integers(84, 109)), int(rng.integers(72, 85)))
    width, height = (s * _SCALE for s in (sides if rng.random() < 0.6 else sides[::-1]))
    background = _BACKGROUNDS[(family + colour) % len(_BACKGROUNDS)]
    image = Image.new("RGB", (width, height), _vary(background, 14, rng))
    draw = ImageDraw.Draw(image)
    _draw_leaves(draw, width, height, background, rng)
    radius = min(width, height) * rng.uniform(0.36, 0.50)
    middle = np.array([width, height]) * rng.uniform(0.42, 0.58, 2)
    _draw_petals(draw, _FAMILIES[family], _vary(_PETALS[colour], 12, rng), (middle, radius), rng)
    return _photograph(image.reduce(_SCALE), rng)


def write_flowers(folder: Path, per_class: Mapping[str, int] = PER_CLASS, seed: int = 0) -> None:
    """Write 102flowers.tgz, imagelabels.mat and setid.mat into a folder."""
    plan = [
        (label, split) for split, n in per_class.items() for label in range(NUM_CLASSES) for _ in range(n)
    ]
    # Shuffled, so that reading in the order of the archive gives all classes.
    order = np.random.default_rng(seed).permutation(len(plan))
    mixed = [plan[i] for i in order]
    console = Console(stderr=True)
    with (
        (folder / "102flowers.tgz").open("wb") as file,
        gzip.GzipFile("", "wb", 1, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        steps: Iterable[tuple[int, str]] = track(
            mixed, "drawing flowers", console=console, disable=not console.is_terminal, transient=True
        )
        for number, (label, _) in enumerate(steps, start=1):
            buffer = io.BytesIO()
            draw_flower(label, np.random.default_rng([seed, number])).save(buffer, "JPEG", quality=88)
            entry = tarfile.TarInfo(f"jpg/image_{number:05}.jpg")
            entry.size = buffer.tell()
            buffer.seek(0)
            archive.addfile(entry, buffer)
    labels = np.array([[label + 1 for label, _ in mixed]], dtype=np.uint8)
    ids = {
        split: np.array([[i for i, (_, s) in enumerate(mixed, start=1) if s == split]], dtype=np.uint16)
        for split in per_class
    }
    _write_mat(folder / "imagelabels.mat", {"labels": labels})
    _write_mat(folder / "setid.mat", ids)


def _draw_petals(
    draw: ImageDraw.ImageDraw,
    family: tuple[int, str, Colour, float],
    colour: Colour,
    circle: tuple[Floats, float],
    rng: np.random.Generator,
) -> None:
    middle, radius = circle
    petals, shape, centre, core = family
    outline = _outline(shape, _WIDTHS[petals])
    start = rng.uniform(0, 2 * np.pi)
    for i in range(petals):
        angle = start + 2 * np.pi * i / petals + rng.normal(0, 0.05)
        along = np.array([np.cos(angle), np.sin(angle)])
        points = (
            outline @ np.array([along, [-along[1], along[0]]]) * radius * rng.uniform(0.92, 1.05) + middle
        )
        shade = _vary(colour, 8, rng, brightness=rng.uniform(0.86, 1.05))
        edge = _vary(shade, 0, rng, brightness=0.66)
        draw.polygon([(float(x), float(y)) for x, y in points], fill=shade, outline=edge)
    half = radius * core
    box = (middle[0] - half, middle[1] - half, middle[0] + half, middle[1] + half)
    draw.ellipse(box, fill=_vary(centre, 10, rng))


def _outline(shape: str, width: float) -> Floats:
    """The edge of one petal of length 1: how far along and how far across, for points around it."""
    t = np.linspace(0, 1, 14)
    across = {
        "round": np.sin(np.pi * t**1.4) ** 0.7,
        "heart": np.sin(np.pi * t**1.9) ** 0.6,
        "pointed": np.sin(np.pi * t) * (1 - 0.4 * t) * 1.2,
        "narrow": np.sin(np.pi * t) ** 0.5,
    }[shape]
    along = t.copy()
    if shape == "heart":  # a notch: the tip is below the two lobes
        along[-3:] = (0.99, 0.93, 0.74)
    edge = np.stack([along, across * width], axis=1)
    return np.concatenate([edge, edge[::-1] * (1, -1)])


def _draw_leaves(
    draw: ImageDraw.ImageDraw, width: int, height: int, colour: Colour, rng: np.random.Generator
) -> None:
    """Blurred things behind the flower, a little lighter or darker than the background."""
    for _ in range(int(rng.integers(3, 8))):
        x, y = rng.uniform(0, width), rng.uniform(0, height)
        a, b = rng.uniform(0.06, 0.25, 2) * width
        shade = _vary(colour, 10, rng, brightness=rng.uniform(0.7, 1.3))
        draw.ellipse((x - a, y - b, x + a, y + b), fill=shade)


def _photograph(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Light that falls from one side, and the noise of a sensor."""
    pixels = np.asarray(image, dtype=np.float32)
    down = np.linspace(-1, 1, pixels.shape[0], dtype=np.float32)[:, None, None] * np.float32(
        rng.normal(0, 0.08)
    )
    right = np.linspace(-1, 1, pixels.shape[1], dtype=np.float32)[None, :, None] * np.float32(
        rng.normal(0, 0.08)
    )
    light = np.float32(rng.uniform(0.85, 1.12)) + down + right
    noise = rng.standard_normal(pixels.shape, dtype=np.float32) * np.float32(7)
    return Image.fromarray(np.clip(pixels * light + noise, 0, 255).astype(np.uint8))


def _vary(colour: Colour, spread: float, rng: np.random.Generator, brightness: float = 1.0) -> Colour:
    r, g, b = np.clip(np.array(colour) * brightness + rng.normal(0, spread, 3), 0, 255).astype(int).tolist()
    return r, g, b


def _write_mat(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    buffer = io.BytesIO()
    import scipy.io  # takes 0.2 s: imported on first use

    scipy.io.savemat(buffer, dict(arrays))
    data = bytearray(buffer.getvalue())
    # The header text of 116 bytes contains the date: replace it, so that the file is deterministic.
    data[:116] = b"MATLAB 5.0 MAT-file, drawn by Argosy".ljust(116)
    path.write_bytes(data)

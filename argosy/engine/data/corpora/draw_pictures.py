"""Generate small image data sets in the formats of the originals. Every machine generates the same pixels."""

# SPDX-License-Identifier: Apache-2.0
import colorsys
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from argosy.engine.data.corpora.archives import write_tar
from argosy.engine.data.draw_digits import write_idx

_CLOTHES: tuple[tuple[tuple[float, float], ...], ...] = (
    ((2, 6), (9, 4), (19, 4), (26, 6), (25, 12), (21, 11), (21, 25), (7, 25), (7, 11), (3, 12)),
    ((9, 3), (19, 3), (22, 26), (16, 26), (14, 9), (12, 26), (6, 26)),
    ((3, 5), (10, 3), (18, 3), (25, 5), (27, 24), (22, 24), (21, 12), (21, 24), (7, 24), (7, 12), (6, 24), (1, 24)),
    ((10, 2), (18, 2), (17, 10), (23, 26), (5, 26), (11, 10)),
    ((3, 4), (12, 3), (14, 6), (16, 3), (25, 4), (27, 26), (15, 26), (14, 10), (13, 26), (1, 26)),
    ((1, 20), (6, 17), (10, 19), (17, 14), (21, 15), (26, 21), (26, 24), (1, 24)),
    ((4, 6), (11, 4), (14, 9), (17, 4), (24, 6), (25, 20), (21, 20), (20, 26), (8, 26), (7, 20), (3, 20)),
    ((1, 19), (9, 15), (14, 11), (19, 16), (26, 18), (27, 22), (1, 22)),
    ((5, 11), (9, 11), (11, 5), (17, 5), (19, 11), (23, 11), (25, 25), (3, 25)),
    ((10, 3), (17, 3), (17, 14), (26, 20), (26, 25), (8, 25)),
)  # fmt: skip
"""Outlines in 28 x 28 pixels: T-shirt, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag, boot."""


def write_fashion(folder: Path, train: int = 3000, test: int = 500) -> None:
    """The four idx files of Fashion-MNIST: outlines of clothes, moved, scaled, with a pattern and noise."""
    for number, (name, count) in enumerate((("train", train), ("t10k", test))):
        rng = np.random.default_rng([8, number])
        labels = rng.integers(0, 10, count).astype(np.uint8)
        images = np.stack([_garment(int(label), rng) for label in labels])
        write_idx(folder / f"{name}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{name}-labels-idx1-ubyte.gz", labels)


def write_cifar10(folder: Path, per_batch: int = 200) -> None:
    """cifar-10-python.tar.gz: the colour of stripes is the class."""
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    batches = {
        f"cifar-10-batches-py/{name}": _cifar_batch(np.random.default_rng([9, i]), per_batch, 10, b"labels")
        for i, name in enumerate(names)
    }
    write_tar(folder / "cifar-10-python.tar.gz", batches)


def write_cifar100(folder: Path, train: int = 1000, test: int = 200) -> None:
    """cifar-100-python.tar.gz: colour and direction of stripes are the class."""
    batches = {
        f"cifar-100-python/{name}": _cifar_batch(np.random.default_rng([10, i]), count, 100, b"fine_labels")
        for i, (name, count) in enumerate((("train", train), ("test", test)))
    }
    write_tar(folder / "cifar-100-python.tar.gz", batches)


def write_voc2012(folder: Path) -> None:
    """VOCtrainval_11-May-2012.tar: a coloured ellipse of one of 20 classes in front of a grey ground."""
    rng = np.random.default_rng(11)
    root = "VOCdevkit/VOC2012"
    names = [f"2012_{i:06}" for i in range(24)]
    contents: dict[str, bytes] = {}
    for split, part in (("train", names[:16]), ("val", names[16:]), ("trainval", names)):
        contents[f"{root}/ImageSets/Segmentation/{split}.txt"] = "".join(f"{n}\n" for n in part).encode()
    for name in names:
        size = (int(rng.integers(56, 72)), int(rng.integers(40, 56)))
        label = int(rng.integers(1, 21))
        photograph = Image.fromarray(rng.integers(90, 130, (size[1], size[0], 3)).astype(np.uint8))
        classes = Image.new("P", size)
        classes.putpalette([(i * 37) % 256 for i in range(768)])
        box = [*rng.uniform(2, 14, 2).tolist(), *(np.array(size) - rng.uniform(2, 14, 2)).tolist()]
        ImageDraw.Draw(photograph).ellipse(box, fill=_colour(label / 20))
        ImageDraw.Draw(classes).ellipse(box, fill=label, outline=255)  # 255: the border, as in the original
        contents[f"{root}/JPEGImages/{name}.jpg"] = _encoded(photograph, "JPEG")
        contents[f"{root}/SegmentationClass/{name}.png"] = _encoded(classes, "PNG")
    write_tar(folder / "VOCtrainval_11-May-2012.tar", contents)


def _garment(label: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    scale, shift = rng.uniform(0.8, 1.05, 2), rng.uniform(-1.5, 1.5, 2)
    points = (np.array(_CLOTHES[label]) - 14) * scale + 14 + shift
    image = Image.new("L", (28, 28))
    ImageDraw.Draw(image).polygon([(float(x), float(y)) for x, y in points], fill=int(rng.integers(120, 220)))
    pixels = np.asarray(image, dtype=np.float64)
    pattern = 1 + 0.2 * np.sin(np.arange(28) * rng.uniform(0.3, 2))[:, None]
    noise = rng.normal(0, 12, pixels.shape)
    garment: npt.NDArray[np.uint8] = np.clip((pixels * pattern + noise) * (pixels > 0), 0, 255).astype(
        np.uint8
    )
    return garment


def _cifar_batch(rng: np.random.Generator, count: int, classes: int, key: bytes) -> bytes:
    labels = rng.integers(0, classes, count)
    rows, columns = np.mgrid[:32, :32]
    images = []
    for label in labels.tolist():
        angle = (label // 10 if classes == 100 else int(rng.integers(10))) * np.pi / 10
        phase = (rows * np.sin(angle) + columns * np.cos(angle)) * rng.uniform(0.5, 0.9) + rng.uniform(0, 6)
        colour = np.array(_colour(label % 10 / 10)).reshape(3, 1, 1)
        image = colour * (0.65 + 0.35 * np.sin(phase)) + rng.normal(0, 20, (3, 32, 32))
        images.append(np.clip(image, 0, 255).astype(np.uint8).reshape(-1))
    batch: dict[bytes, Any] = {b"data": np.stack(images), key: labels.tolist()}
    if classes == 100:
        batch[b"coarse_labels"] = (labels // 5).tolist()
    return pickle.dumps(batch, protocol=2)


def _colour(hue: float) -> tuple[int, int, int]:
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.8, 0.9)
    return round(red * 255), round(green * 255), round(blue * 255)


def _encoded(image: Image.Image, format: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format)
    return buffer.getvalue()

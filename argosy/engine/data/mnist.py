"""MNIST: four idx files in the cache folder, or the built-in generated digits if they are missing."""

# SPDX-License-Identifier: Apache-2.0
import gzip
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from argosy.engine import env
from argosy.engine.data import checked_files, draw_digits
from argosy.engine.errors import CorruptFileError, UnknownNameError

MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}


def reader(
    name: str, folder: Path | None = None, checksums: Mapping[str, str] = MD5
) -> Callable[[], Iterator[tuple[npt.NDArray[np.float32], int]]]:
    """A reader of (784 float32 values from -1 to 1, label) over `train` or `t10k`.

    Nothing is downloaded. The images stay in memory as bytes.
    """
    if name not in ("train", "t10k"):
        raise UnknownNameError(f"no set {name!r} of MNIST; use train or t10k")
    folder = files(folder, checksums)
    images, labels = load(folder / f"{name}-images-idx3-ubyte.gz", folder / f"{name}-labels-idx1-ubyte.gz")

    def samples() -> Iterator[tuple[npt.NDArray[np.float32], int]]:
        for image, label in zip(images, labels, strict=True):
            yield image.ravel().astype(np.float32) / np.float32(127.5) - np.float32(1), int(label)

    return samples


def files(folder: Path | None = None, checksums: Mapping[str, str] = MD5) -> Path:
    """The folder of the four files, checked, or one with generated digits."""
    return checked_files.checked_or_drawn(
        folder or env.cache_dir() / "dataset" / "mnist",
        checksums,
        "mnist",
        "digits",
        draw_digits.VERSION,
        draw_digits.write_digits,
    )


def load(image_file: Path, label_file: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """(images [N, 28, 28], labels [N]) of two idx files."""
    images, labels = read_idx(image_file, 3), read_idx(label_file, 1)
    if len(images) != len(labels):
        raise CorruptFileError(
            f"{image_file} has {len(images)} images and {label_file.name} {len(labels)} labels; use files "
            "of one data set"
        )
    return images, labels


def read_idx(path: Path, ndim: int) -> npt.NDArray[np.uint8]:
    """A gzipped idx file of bytes with `ndim` dimensions."""
    try:
        with gzip.open(path) as file:
            data = file.read()
        zero, kind, num_dims = struct.unpack_from(">HBB", data)
        shape = struct.unpack_from(f">{ndim}I", data, 4)
    except (EOFError, gzip.BadGzipFile, zlib.error, struct.error) as e:
        raise CorruptFileError(f"{path} is truncated or malformed ({e}); replace it with the original") from e
    if (zero, kind, num_dims) != (0, 8, ndim) or len(data) != 4 + 4 * ndim + int(np.prod(shape)):
        raise CorruptFileError(
            f"{path} has {len(data)} bytes that are not an idx array of bytes with {ndim} dimensions; replace"
            " it with the original"
        )
    return np.frombuffer(data, np.uint8, offset=4 + 4 * ndim).reshape(shape)

"""Small data sets in the real formats, made once per run."""

import gc
import gzip
import hashlib
import io
import struct
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import Image

MakeFiles = Callable[[Path], dict[str, str]]


def md5s(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.md5(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir()) if p.is_file()}


def reader_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "argosy-reader"]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """After every test of this folder."""
    yield
    if reader_threads():
        gc.collect()  # a failed test keeps its frame, and so its iterators, in cycles
    assert reader_threads() == []


@pytest.fixture
def make_flowers() -> MakeFiles:
    """Write seven one-coloured images as 102flowers.tgz and its two .mat files; gives their md5."""

    def make(folder: Path) -> dict[str, str]:
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(folder / "102flowers.tgz", "w:gz") as archive:
            for number in (3, 1, 2, 4, 5, 6, 7):  # an archive need not be sorted
                buffer = io.BytesIO()
                Image.new("RGB", (40 + number, 30), (30 * number, 100, 20)).save(buffer, "JPEG", quality=95)
                entry = tarfile.TarInfo(f"jpg/image_{number:05}.jpg")
                entry.size = buffer.tell()
                buffer.seek(0)
                archive.addfile(entry, buffer)
        labels = np.array([[77, 1, 102, 5, 5, 6, 7]], dtype=np.uint8)
        splits = {"tstid": [[1, 2, 3, 7]], "trnid": [[4, 5]], "valid": [[6]]}
        scipy.io.savemat(folder / "imagelabels.mat", {"labels": labels})
        ids = {name: np.array(numbers, dtype=np.uint16) for name, numbers in splits.items()}
        scipy.io.savemat(folder / "setid.mat", ids)
        return md5s(folder)

    return make


@pytest.fixture
def make_mnist() -> MakeFiles:
    """Write four idx files with three training and two test images; gives their md5."""

    def make(folder: Path) -> dict[str, str]:
        folder.mkdir(parents=True, exist_ok=True)
        for name, size in (("train", 3), ("t10k", 2)):
            images = np.arange(size, dtype=np.uint8)[:, None, None] * np.full((28, 28), 100, np.uint8)
            head = struct.pack(">IIII", 2051, size, 28, 28)
            (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + images.tobytes()))
            head = struct.pack(">II", 2049, size)
            labels = bytes(9 - i for i in range(size))
            (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(head + labels))
        return md5s(folder)

    return make

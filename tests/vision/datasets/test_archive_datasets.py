"""Image data sets: generated ones from the cache, in the form of each backend."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from argosy import vision
from argosy.engine.data import checked_files, draw_digits, draw_flowers
from argosy.engine.data.corpora import draw_pictures
from argosy.engine.errors import ConfigError, DataError, UnknownNameError
from argosy.vision import datasets
from argosy.vision import transforms as T


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with small generated sets."""
    monkeypatch.setenv("ARGOSY_CACHE", str(tmp_path))
    folder = tmp_path / "dataset"
    checked_files.create_once(
        folder / "mnist-drawn",
        draw_digits.VERSION,
        lambda path: draw_digits.write_digits(path, {"train": 12, "t10k": 5}),
    )
    checked_files.create_once(
        folder / "fashion-mnist-drawn", 1, lambda path: draw_pictures.write_fashion(path, 6, 4)
    )
    checked_files.create_once(folder / "cifar-10-drawn", 1, lambda path: draw_pictures.write_cifar10(path, 2))
    return folder


def test_digits_and_clothes(cache: Path) -> None:
    digits = vision.MNIST(mode="test")
    image, label = digits[2]
    assert (image.mode, image.size, label.shape, label.dtype) == ("L", (28, 28), (1,), np.int64)
    assert (len(digits), len(datasets.MNIST()), len(datasets.FashionMNIST(mode="test"))) == (5, 12, 4)
    as_array = datasets.MNIST(mode="test", backend="cv2", transform=T.Normalize([127.5], [127.5]))[2][0]
    expected = (np.asarray(image, dtype="float32")[None] - 127.5) / 127.5
    np.testing.assert_allclose(as_array, expected, rtol=1e-6)
    folder = cache / "mnist-drawn"
    given = datasets.MNIST(
        str(folder / "t10k-images-idx3-ubyte.gz"), str(folder / "t10k-labels-idx1-ubyte.gz")
    )
    assert given[2][0].tobytes() == image.tobytes()
    with pytest.raises(ConfigError, match="image_path and label_path"):
        datasets.MNIST(download=False)
    with pytest.raises(UnknownNameError, match="mode='valid'"):
        datasets.MNIST(mode="valid")


def test_photographs(cache: Path) -> None:
    train = datasets.Cifar10(transform=T.ToTensor())
    tensor, label = train[3]
    assert (len(train), tuple(tensor.shape), tensor.dtype, label.shape) == (
        10,
        (3, 32, 32),
        torch.float32,
        (),
    )
    array, _ = datasets.Cifar10(backend="cv2")[3]
    np.testing.assert_allclose(array.transpose(2, 0, 1) / 255, tensor.numpy(), rtol=1e-5)
    with pytest.raises(DataError, match="there is no file"):
        datasets.Cifar100("nothing.tar.gz")
    images = datasets.VOC2012(mode="valid")
    photograph, classes = images[1]
    assert (len(images), photograph.size, classes.mode) == (8, classes.size, "P")
    array, labels = datasets.VOC2012(backend="cv2")[0]
    assert (array.shape[:2], array.dtype, labels.dtype) == (labels.shape, np.float32, np.float32)


def test_flowers_have_labels_from_one(cache: Path) -> None:
    checked_files.create_once(
        cache / "flowers-drawn",
        draw_flowers.VERSION,
        lambda path: draw_flowers.write_flowers(path, {"tstid": 1, "trnid": 0, "valid": 0}),
    )
    flowers = datasets.Flowers(transform=T.Resize((8, 8)))
    image, _ = flowers[0]
    assert isinstance(image, Image.Image)
    assert (len(flowers), image.size) == (102, (8, 8))
    assert sorted({int(flowers[i][1][0]) for i in range(102)}) == list(range(1, 103))
    files = [str(cache / "flowers-drawn" / n) for n in ("102flowers.tgz", "imagelabels.mat", "setid.mat")]
    assert len(datasets.Flowers(*files)) == 102
    with pytest.raises(ConfigError, match="or none of them"):
        datasets.Flowers(data_file="x")

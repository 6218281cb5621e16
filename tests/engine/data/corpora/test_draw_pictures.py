"""Generated image sets: readable by the parsers, always the same, and learnable."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import numpy as np

from argosy.engine.data.corpora import cifar, draw_pictures
from argosy.engine.data.corpora.voc2012 import Segmentation
from argosy.engine.data.mnist import read_idx


def nearest_mean_accuracy(images: Any, labels: Any) -> float:
    """Of the first half's class means on the second half."""
    half, x = len(labels) // 2, images.reshape(len(images), -1).astype(float)
    means = np.stack([x[:half][labels[:half] == c].mean(0) for c in range(10)])
    guesses = ((x[half:, None] - means) ** 2).sum(-1).argmin(1)
    return float((guesses == labels[half:]).mean())


def test_clothes(tmp_path: Path) -> None:
    draw_pictures.write_fashion(tmp_path, train=300, test=20)
    images = read_idx(tmp_path / "train-images-idx3-ubyte.gz", 3)
    labels = read_idx(tmp_path / "train-labels-idx1-ubyte.gz", 1)
    assert (images.shape, len(read_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", 1))) == ((300, 28, 28), 20)
    assert nearest_mean_accuracy(images, labels) > 0.8


def test_stripes(tmp_path: Path) -> None:
    draw_pictures.write_cifar10(tmp_path, per_batch=40)
    first = (tmp_path / "cifar-10-python.tar.gz").read_bytes()
    images, labels = cifar.load(tmp_path / "cifar-10-python.tar.gz", "cifar-10", "train")
    assert nearest_mean_accuracy(images, np.array(labels)) > 0.8
    draw_pictures.write_cifar10(tmp_path, per_batch=40)
    assert (tmp_path / "cifar-10-python.tar.gz").read_bytes() == first


def test_ellipses(tmp_path: Path) -> None:
    draw_pictures.write_voc2012(tmp_path)
    images = Segmentation(tmp_path / "VOCtrainval_11-May-2012.tar", "trainval")
    photograph, classes = images[5]
    labels = np.unique(np.asarray(classes))
    assert (len(images), photograph.size, len(labels)) == (24, classes.size, 3)
    assert labels[0] == 0 < labels[1] <= 20 < labels[2] == 255

"""MNIST: readers of (784 float32 values from -1 to 1, label from 0 to 9).

The four idx files are looked for in `<cache>/dataset/mnist`; if they are missing, generated digits are used.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator
from typing import Any

from argosy.engine.data import mnist

__all__ = ["test", "train"]


def train() -> Callable[[], Iterator[Any]]:
    """The training images: 60,000, or 12,000 generated ones."""
    return mnist.reader("train")


def test() -> Callable[[], Iterator[Any]]:
    """The test images: 10,000, or 2,000 generated ones."""
    return mnist.reader("t10k")

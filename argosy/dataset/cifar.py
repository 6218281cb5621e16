"""CIFAR: readers of (3072 float32 values from 0 to 1, RGB plane by plane; label).

The archives are looked for in `<cache>/dataset/cifar`; if they are missing, generated images are used.
"""

# SPDX-License-Identifier: Apache-2.0
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from argosy.engine.data.corpora import cifar, sources

__all__ = ["test10", "test100", "train10", "train100"]


def train10(cycle: bool = False) -> Callable[[], Iterator[Any]]:
    """CIFAR-10, to train; `cycle` repeats it without end."""
    return _reader("cifar-10", "train", cycle)


def test10(cycle: bool = False) -> Callable[[], Iterator[Any]]:
    """CIFAR-10, to test; `cycle` repeats it without end."""
    return _reader("cifar-10", "test", cycle)


def train100() -> Callable[[], Iterator[Any]]:
    """CIFAR-100, to train."""
    return _reader("cifar-100", "train")


def test100() -> Callable[[], Iterator[Any]]:
    """CIFAR-100, to test."""
    return _reader("cifar-100", "test")


def _reader(name: str, split: str, cycle: bool = False) -> Callable[[], Iterator[Any]]:
    source = sources.CIFAR10 if name == "cifar-10" else sources.CIFAR100
    images, labels = cifar.load(source.file(), name, split)

    def samples() -> Iterator[Any]:
        for _ in itertools.count() if cycle else (0,):
            yield from (
                (i.astype(np.float32) / np.float32(255), n) for i, n in zip(images, labels, strict=True)
            )

    return samples

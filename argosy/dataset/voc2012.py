"""Pascal VOC 2012: readers of (photograph HWC in RGB, class of each pixel HW), both uint8.

The archive is looked for in `<cache>/dataset/voc2012`; if it is missing, generated images are used.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from argosy.engine.data.corpora.sources import VOC2012
from argosy.engine.data.corpora.voc2012 import Segmentation

__all__ = ["test", "train", "val"]


def train() -> Callable[[], Iterator[Any]]:
    """All images with classes, as in Paddle: the list `trainval`."""
    return _reader("trainval")


def test() -> Callable[[], Iterator[Any]]:
    """The list `train`, as in Paddle."""
    return _reader("train")


def val() -> Callable[[], Iterator[Any]]:
    """The list `val`."""
    return _reader("val")


def _reader(split: str) -> Callable[[], Iterator[Any]]:
    images = Segmentation(VOC2012.file(), split)
    return lambda: (tuple(np.asarray(image) for image in images[i]) for i in range(len(images)))

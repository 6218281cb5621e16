"""VOC 2012: images of a list, read from the archive when they are asked for."""

# SPDX-License-Identifier: Apache-2.0
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from argosy.engine.data.corpora.archives import write_tar
from argosy.engine.data.corpora.voc2012 import Segmentation
from argosy.engine.errors import CorruptFileError

ROOT = "VOCdevkit/VOC2012"


def encoded(image: Image.Image, format: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format)
    return buffer.getvalue()


def test_photographs_and_classes(tmp_path: Path) -> None:
    path = tmp_path / "voc.tar"
    classes = Image.new("P", (5, 4))
    classes.putpalette(list(range(256)) * 3)
    classes.putpixel((2, 1), 15)
    contents = {
        f"{ROOT}/ImageSets/Segmentation/val.txt": b"one\ntwo\n",
        f"{ROOT}/JPEGImages/one.jpg": encoded(Image.new("RGB", (5, 4), (200, 0, 0)), "JPEG"),
        f"{ROOT}/SegmentationClass/one.png": encoded(classes, "PNG"),
    }
    write_tar(path, contents)
    images = Segmentation(path, "val")
    photograph, labels = images[0]
    assert (len(images), photograph.mode, photograph.size) == (2, "RGB", (5, 4))
    assert np.argwhere(np.asarray(labels)).tolist() == [[1, 2]]
    assert np.asarray(labels).max() == 15
    with pytest.raises(CorruptFileError, match=r"lacks .*two.jpg"):
        images[1]

"""The 102 flowers: readers of (float32 image, flat, BGR, less the mean; label from 0 to 101).

The three files are looked for in `<cache>/dataset/flowers`; if they are missing, generated flowers
are used. As in Paddle, `train` is the split that the files call tstid, because it is the largest (6,149
images, or 2,448 generated ones), and `test` is trnid.

Argosy's additions, by keyword: `image_size` (the side of the cropped square), `seed` (of crops and
flips), `epoch` (the number of the first epoch, for a resumed run) and `share` ((rank, ranks): only this
rank's images). The order is always the same; `argosy.reader.shuffle` changes it.
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.engine.data.flowers import reader as _reader
from argosy.framework.variant import variant

__all__ = ["test", "train", "valid"]


@variant(_reader, "tstid", True, parameters="mapper buffered_size use_xmap cycle image_size seed epoch share")
def train() -> Any:
    """To train: random crops and flips. A `mapper` gets (JPEG bytes, label) and replaces all of it."""


@variant(_reader, "trnid", False, parameters="mapper buffered_size use_xmap cycle image_size")
def test() -> Any:
    """To test: the middle of each image."""


@variant(_reader, "valid", False, parameters="mapper buffered_size use_xmap image_size")
def valid() -> Any:
    """To validate: the middle of each image."""

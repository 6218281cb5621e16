"""Functions of Pillow for arrays, too: uint8 arrays as images, others channel by channel in float32."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from argosy.engine.errors import ConfigError

Picture: TypeAlias = Any
"""A Pillow image, or an array HW or HWC."""
Size: TypeAlias = int | Sequence[int]

_RESAMPLING = {name.lower(): method for name, method in Image.Resampling.__members__.items()}


def size_of(img: Picture) -> tuple[int, int]:
    """(height, width)."""
    if isinstance(img, Image.Image):
        return img.height, img.width
    if isinstance(img, np.ndarray) and img.ndim in (2, 3):
        return img.shape[0], img.shape[1]
    shape = f" of shape {tuple(img.shape)}" if hasattr(img, "shape") else ""
    raise ConfigError(f"a {type(img).__name__}{shape} is no image; give a Pillow image or an array HW or HWC")


def resampling(interpolation: str) -> Image.Resampling:
    """Pillow's method of this name."""
    if interpolation not in _RESAMPLING:
        raise ConfigError(f"interpolation={interpolation!r}; use one of {', '.join(_RESAMPLING)}")
    return _RESAMPLING[interpolation]


def by_pillow(
    img: Picture, function: Callable[[Image.Image], Image.Image], colours: str | None = None
) -> Picture:
    """Apply a function of Pillow images to an image or an array; `colours`: the name of one that needs 8-bit values."""
    size_of(img)
    if isinstance(img, Image.Image):
        return function(img)
    array = np.ascontiguousarray(img)
    flat = array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array
    if array.dtype == np.uint8 and (flat.ndim == 2 or flat.shape[2] in (3, 4)):
        result = np.asarray(function(Image.fromarray(flat)))
    elif colours:
        raise ConfigError(
            f"{colours}: an array of {array.dtype} with shape {array.shape}; give uint8 with 1, 3 or 4 channels"
        )
    else:
        planes = np.atleast_3d(array.astype(np.float32)).transpose(2, 0, 1)
        result = np.stack([np.asarray(function(Image.fromarray(plane))) for plane in planes], axis=-1)
        result = (result[:, :, 0] if flat.ndim == 2 else result).astype(array.dtype)
    return result[:, :, None] if flat is not array and result.ndim == 2 else result

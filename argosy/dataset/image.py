"""Images as arrays, HWC in BGR order. See `argosy.engine.data.images`."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.data.images import (
    center_crop,
    left_right_flip,
    load_and_transform,
    load_image,
    load_image_bytes,
    random_crop,
    resize_short,
    simple_transform,
    to_chw,
)

__all__ = [
    "center_crop",
    "left_right_flip",
    "load_and_transform",
    "load_image",
    "load_image_bytes",
    "random_crop",
    "resize_short",
    "simple_transform",
    "to_chw",
]

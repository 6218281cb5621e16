"""Which form images are loaded in: `pil` (a Pillow image, RGB) or `cv2` (an array, HWC in BGR order).

OpenCV itself is not used: `cv2` gives what OpenCV would, decoded by Pillow.
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from PIL import Image

from argosy.engine.data.images import load_image
from argosy.engine.errors import ConfigError
from argosy.engine.log import logger

_BACKENDS = ("pil", "cv2")
_backend = "pil"


def set_image_backend(backend: str) -> None:
    """Choose `pil` or `cv2` for image_load and the data sets."""
    global _backend  # noqa: PLW0603  # Paddle's setting is one per process
    _backend = checked_backend(backend)
    if backend == "cv2":
        logger.debug("image backend cv2: images are decoded by Pillow, in OpenCV's BGR order")


def get_image_backend() -> str:
    """The backend that is set, at first `pil`."""
    return _backend


def image_load(path: str, backend: str | None = None) -> Any:
    """Load an image file in the form of the backend."""
    if checked_backend(backend) == "cv2":
        return load_image(path)
    with Image.open(path) as image:
        return image.convert("RGB")


def checked_backend(backend: str | None) -> str:
    """The backend, or the one that is set; raises ConfigError for an unknown one."""
    if backend is not None and backend not in _BACKENDS:
        raise ConfigError(f"no image backend {backend!r}; use one of {', '.join(_BACKENDS)}")
    return backend or _backend

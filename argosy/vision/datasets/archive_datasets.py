"""Data sets in archives: MNIST, Fashion-MNIST, CIFAR, the 102 flowers, VOC 2012.

With the backend `pil` an image is a Pillow image, with `cv2` an array HWC in RGB order, of which the result is float32.
"""

# SPDX-License-Identifier: Apache-2.0
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

from argosy.engine.data import flowers, mnist
from argosy.engine.data.corpora import cifar, sources, voc2012
from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.vision.image import checked_backend

Transform = Callable[[Any], Any]


class _Images(Dataset[tuple[Any, Any]]):
    """Subclasses define `_sample(index)`, which returns (Pillow image, label), and `__len__`."""

    modes: ClassVar[dict[str, str]] = {"train": "train", "test": "test"}
    """Paddle's modes, and what the files call them."""

    pixel_type: ClassVar[type[np.generic]] = np.uint8
    """Of the array that a transform gets."""

    def __init__(self, mode: str, transform: Transform | None, backend: str | None) -> None:
        self.mode = mode.lower()
        if self.mode not in self.modes:
            raise UnknownNameError(
                f"{type(self).__name__}: mode={mode!r}; use one of {', '.join(self.modes)}"
            )
        self.transform = transform
        self.backend = checked_backend(backend)

    def _sample(self, index: int) -> tuple[Image.Image, Any]:
        raise NotImplementedError

    def __getitem__(self, idx: int) -> tuple[Any, Any]:
        image, label = self._sample(idx)
        picture: Any = np.asarray(image, self.pixel_type) if self.backend == "cv2" else image
        if self.transform is not None:
            picture = self.transform(picture)
        return _float32(picture) if self.backend == "cv2" else picture, label


class MNIST(_Images):
    """Digits of 28 x 28 pixels: (image, [label])."""

    modes: ClassVar[dict[str, str]] = {"train": "train", "test": "t10k"}
    pixel_type = np.float32

    def __init__(
        self,
        image_path: str | None = None,
        label_path: str | None = None,
        mode: str = "train",
        transform: Transform | None = None,
        download: bool = True,
        backend: str | None = None,
    ) -> None:
        super().__init__(mode, transform, backend)
        if (image_path is None or label_path is None) and not download:
            raise ConfigError(
                f"{type(self).__name__}: download=False; give image_path and label_path, or leave it out"
            )
        name = self.modes[self.mode]
        images = Path(image_path) if image_path else self._folder() / f"{name}-images-idx3-ubyte.gz"
        labels = Path(label_path) if label_path else self._folder() / f"{name}-labels-idx1-ubyte.gz"
        self.images, self.labels = mnist.load(images, labels)

    def _folder(self) -> Path:
        return mnist.files()

    def _sample(self, index: int) -> tuple[Image.Image, Any]:
        return Image.fromarray(self.images[index]), self.labels[index : index + 1].astype(np.int64)

    def __len__(self) -> int:
        return len(self.labels)


class FashionMNIST(MNIST):
    """Clothes of 28 x 28 pixels: (image, [label])."""

    def _folder(self) -> Path:
        return sources.FASHION_MNIST.folder()


class Cifar10(_Images):
    """Photographs of 32 x 32 pixels: (image, label)."""

    source = sources.CIFAR10

    def __init__(
        self,
        data_file: str | None = None,
        mode: str = "train",
        transform: Transform | None = None,
        download: bool = True,
        backend: str | None = None,
    ) -> None:
        super().__init__(mode, transform, backend)
        path = self.source.file(data_file, download)
        self.images, self.labels = cifar.load(path, self.source.name, self.mode)

    def _sample(self, index: int) -> tuple[Image.Image, Any]:
        pixels = self.images[index].reshape(3, 32, 32).transpose(1, 2, 0)
        return Image.fromarray(np.ascontiguousarray(pixels)), np.array(self.labels[index], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.labels)


class Cifar100(Cifar10):
    """Photographs of 32 x 32 pixels in 100 classes: (image, label)."""

    source = sources.CIFAR100


class Flowers(_Images):
    """The 102 flowers: (image, [label from 1 to 102, as in the files]).

    As in Paddle, "train" is the split that the files call tstid, because it is the largest.
    """

    modes: ClassVar[dict[str, str]] = {"train": "tstid", "test": "trnid", "valid": "valid"}

    def __init__(
        self,
        data_file: str | None = None,
        label_file: str | None = None,
        setid_file: str | None = None,
        mode: str = "train",
        transform: Transform | None = None,
        download: bool = True,
        backend: str | None = None,
    ) -> None:
        super().__init__(mode, transform, backend)
        files, split = (data_file, label_file, setid_file), self.modes[self.mode]
        if None not in files:
            archive, labels, setid = (Path(str(file)) for file in files)
            self._flowers = flowers.open_files(archive, labels, setid, split)
            return
        if files != (None, None, None) or not download:
            raise ConfigError(
                "Flowers: give data_file, label_file and setid_file, or none of them and leave out download"
            )
        self._flowers = flowers.open_split(split)

    def _sample(self, index: int) -> tuple[Image.Image, Any]:
        image = Image.open(io.BytesIO(self._flowers.read(index))).convert("RGB")
        return image, np.array([self._flowers.labels[index] + 1], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._flowers)


class VOC2012(_Images):
    """Photographs, and the class of each pixel: (image, classes), both in the form of the backend."""

    modes: ClassVar[dict[str, str]] = {"train": "trainval", "test": "train", "valid": "val"}

    def __init__(
        self,
        data_file: str | None = None,
        mode: str = "train",
        transform: Transform | None = None,
        download: bool = True,
        backend: str | None = None,
    ) -> None:
        super().__init__(mode, transform, backend)
        self._images = voc2012.Segmentation(sources.VOC2012.file(data_file, download), self.modes[self.mode])

    def _sample(self, index: int) -> tuple[Image.Image, Any]:
        image, classes = self._images[index]
        return image, np.asarray(classes, dtype=np.float32) if self.backend == "cv2" else classes

    def __len__(self) -> int:
        return len(self._images)


def _float32(picture: Any) -> Any:
    return picture.float() if isinstance(picture, torch.Tensor) else np.asarray(picture, dtype=np.float32)

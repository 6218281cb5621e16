"""Images in folders: a folder per class (DatasetFolder), or any images (ImageFolder)."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from argosy.engine.errors import ConfigError, DataError
from argosy.vision.image import image_load

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class DatasetFolder(Dataset[tuple[Any, int]]):
    """root/class/….png: (image, number of the class); classes and files are in alphabetical order."""

    def __init__(
        self,
        root: str,
        loader: Callable[[str], Any] | None = None,
        extensions: Sequence[str] | None = None,
        transform: Callable[[Any], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
    ) -> None:
        self.root, self.transform, self.loader = root, transform, loader or image_load
        self.classes = sorted(path.name for path in _folder(root).iterdir() if path.is_dir())
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        is_valid = _validity(extensions, is_valid_file)
        self.samples = [
            (path, number)
            for name, number in self.class_to_idx.items()
            for path in _files(Path(root, name), is_valid)
        ]
        _check_found(self.samples, root)
        self.targets = [number for _, number in self.samples]

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, target = self.samples[index]
        image = self.loader(path)
        return self.transform(image) if self.transform is not None else image, target

    def __len__(self) -> int:
        return len(self.samples)


class ImageFolder(Dataset[list[Any]]):
    """All images below root: [image]."""

    def __init__(
        self,
        root: str,
        loader: Callable[[str], Any] | None = None,
        extensions: Sequence[str] | None = None,
        transform: Callable[[Any], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
    ) -> None:
        self.root, self.transform, self.loader = root, transform, loader or image_load
        self.samples = _files(_folder(root), _validity(extensions, is_valid_file))
        _check_found(self.samples, root)

    def __getitem__(self, index: int) -> list[Any]:
        image = self.loader(self.samples[index])
        return [self.transform(image) if self.transform is not None else image]

    def __len__(self) -> int:
        return len(self.samples)


def _folder(root: str) -> Path:
    if not Path(root).is_dir():
        raise DataError(f"there is no folder {root}; give the folder of the images")
    return Path(root)


def _validity(
    extensions: Sequence[str] | None, is_valid_file: Callable[[str], bool] | None
) -> Callable[[str], bool]:
    if extensions is not None and is_valid_file is not None:
        raise ConfigError("extensions and is_valid_file are both given; give one of them")
    endings = tuple(ending.lower() for ending in extensions or IMG_EXTENSIONS)
    return is_valid_file or (lambda path: path.lower().endswith(endings))


def _files(folder: Path, is_valid: Callable[[str], bool]) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*") if path.is_file() and is_valid(str(path)))


def _check_found(samples: Sequence[Any], root: str) -> None:
    if not samples:
        raise DataError(f"{root} has no images; check the folder, or give extensions or is_valid_file")

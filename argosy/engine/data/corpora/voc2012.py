"""Pascal VOC 2012, segmentation: photographs, and images of the same size with the class of each pixel."""

# SPDX-License-Identifier: Apache-2.0
import io
import tarfile
from pathlib import Path

from PIL import Image

from argosy.engine.data.corpora.archives import lines, readable
from argosy.engine.errors import CorruptFileError

_ROOT = "VOCdevkit/VOC2012"


class Segmentation:
    """The images of `train`, `val` or `trainval`; the archive is indexed once, images are read when asked for."""

    def __init__(self, path: Path, split: str) -> None:
        self._path = path
        self.names = lines(path, rf"{_ROOT}/ImageSets/Segmentation/{split}\.txt")
        with readable(path), tarfile.open(path, "r:") as archive:
            self._places = {m.name: (m.offset_data, m.size) for m in archive if m.isfile()}

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[Image.Image, Image.Image]:
        """(photograph in RGB, classes in palette mode)."""
        name = self.names[index]
        return self._image(f"JPEGImages/{name}.jpg"), self._image(f"SegmentationClass/{name}.png")

    def _image(self, name: str) -> Image.Image:
        if f"{_ROOT}/{name}" not in self._places:
            raise CorruptFileError(f"{self._path} lacks {_ROOT}/{name}; use the original file")
        offset, size = self._places[f"{_ROOT}/{name}"]
        with self._path.open("rb") as file:
            file.seek(offset)
            return Image.open(io.BytesIO(file.read(size)))

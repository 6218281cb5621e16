"""The 102 flowers: three files in the cache folder, or the built-in generated ones if they are missing.

    102flowers.tgz    jpg/image_00001.jpg …
    imagelabels.mat   labels: the class of image i + 1, from 1
    setid.mat         tstid, trnid, valid: the images of each split, from 1

Nothing is downloaded. The archive is decompressed once, into a .tar next to it: an image is then one read at a known
offset, and all ranks share the page cache.
"""

# SPDX-License-Identifier: Apache-2.0
import functools
import gzip
import itertools
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from argosy.engine import env
from argosy.engine.data import checked_files, draw_flowers
from argosy.engine.data.epoch import epoch_counter
from argosy.engine.data.images import load_image_bytes, simple_transform
from argosy.engine.data.readers import map_readers, positive, shard, xmap_readers
from argosy.engine.errors import CorruptFileError, DataError, UnknownNameError

ARCHIVE, LABELS, SETID = "102flowers.tgz", "imagelabels.mat", "setid.mat"
MD5 = {
    ARCHIVE: "52808999861908f626f3c1f4e79d11fa",
    LABELS: "e0620be6f572b9609742df49c70aed4d",
    SETID: "a5357ecc9cb78c4bef273ce3793fc85c",
}
BGR_MEAN = (103.94, 116.78, 123.68)
SPLITS = ("tstid", "trnid", "valid")

Sample: TypeAlias = tuple[Any, int]
Mapper: TypeAlias = Callable[[tuple[bytes, int]], Any]

# A decoded image of 224 pixels takes 600 KB: at most this many per thread are read ahead.
_AHEAD_PER_THREAD = 16


@dataclass(frozen=True)
class FlowersSplit:
    """One split: the locations of its samples, in the order of the archive."""

    path: Path
    names: tuple[str, ...]
    labels: tuple[int, ...]
    """Classes from 0."""
    places: tuple[tuple[int, int], ...]
    """Offset and size of each image in the archive."""

    def __len__(self) -> int:
        return len(self.names)

    def read(self, index: int) -> bytes:
        """The JPEG of sample `index`; threads may read at the same time."""
        offset, size = self.places[index]
        with self.path.open("rb", buffering=0) as file:  # 15 us, and no file stays open
            file.seek(offset)
            data = file.read(size)
        if len(data) != size:
            raise CorruptFileError(
                f"{self.path} ends inside {self.names[index]}; delete it to have it decompressed again"
            )
        return data


def reader(
    split: str,
    is_train: bool,
    mapper: Mapper | None = None,
    buffered_size: int = 1024,
    use_xmap: bool = True,
    cycle: bool = False,
    *,
    image_size: int = 224,
    seed: int = 0,
    epoch: int = 0,
    share: tuple[int, int] = (0, 1),
    folder: Path | None = None,
    checksums: Mapping[str, str] = MD5,
) -> Callable[[], Iterator[Any]]:
    """A reader of (image, label) over one split.

    Without a mapper, the image is float32, CHW in BGR order, less the mean, flat: the short side is
    resized to 8/7 of `image_size`, then a square is cropped, at random and flipped at random to train,
    else in the middle. A mapper gets (JPEG bytes, label) instead. Crops depend on `seed`, the number
    of the epoch (the first is `epoch`) and the image, and the order is always the archive's, with any
    number of threads: so a run can be repeated, and resumed at an epoch. `share`: (rank, ranks) selects the shard of
    a rank, the other images are not decoded; all ranks get equally many.
    """
    flowers = open_split(split, folder, checksums)
    size = positive("image_size", image_size)
    next_epoch = epoch_counter(epoch)

    def numbered() -> Iterator[tuple[int, int]]:
        """(epoch, sample); the images are read by the threads that decode them."""
        first = next_epoch()
        for number in itertools.count(first) if cycle else (first,):
            yield from ((number, index) for index in range(len(flowers)))

    def make(key: tuple[int, int]) -> Any:
        number, index = key
        label = flowers.labels[index]
        if mapper is not None:
            return mapper((flowers.read(index), label))
        rng = np.random.default_rng([seed, number, index])
        return _default_image(flowers, index, size, is_train, rng), label

    sharded = shard(numbered, num_shards=share[1], index=share[0])
    if not use_xmap:
        return map_readers(make, sharded)
    threads = env.reader_threads()
    ahead = min(positive("buffered_size", buffered_size), threads * _AHEAD_PER_THREAD)
    return xmap_readers(make, sharded, threads, ahead, order=True)


def open_split(split: str, folder: Path | None = None, checksums: Mapping[str, str] = MD5) -> FlowersSplit:
    """Check the files and index one split; without files, the generated flowers are used."""
    if split not in SPLITS:
        raise UnknownNameError(f"no split {split!r} of the flowers; use one of {', '.join(SPLITS)}")
    folder = checked_files.checked_or_drawn(
        folder or env.cache_dir() / "dataset" / "flowers",
        checksums,
        "flowers",
        "flowers",
        draw_flowers.VERSION,
        draw_flowers.write_flowers,
    )
    return open_files(folder / ARCHIVE, folder / LABELS, folder / SETID, split)


def open_files(archive: Path, label_file: Path, setid_file: Path, split: str) -> FlowersSplit:
    """Index one split of the three files; the archive is decompressed next to itself."""
    path = checked_files.derive(archive, archive.with_suffix(".tar"), functools.partial(_unzip, archive))
    return _index(path, _labels_of(label_file, setid_file, split))


def _default_image(
    flowers: FlowersSplit, index: int, size: int, is_train: bool, rng: np.random.Generator
) -> Any:
    short = round(size * 256 / 224)
    try:
        image = load_image_bytes(flowers.read(index), at_least=2 * short)
    except DataError as e:
        raise CorruptFileError(f"{flowers.path}, {flowers.names[index]}: {e}") from e
    return simple_transform(image, short, size, is_train, mean=BGR_MEAN, rng=rng).ravel()


def _unzip(packed: Path, path: Path) -> None:
    try:
        with gzip.open(packed) as source, path.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    except (EOFError, gzip.BadGzipFile, zlib.error) as e:
        raise CorruptFileError(f"{packed} cannot be unzipped ({e}); replace it with the original file") from e


def _labels_of(label_file: Path, setid_file: Path, split: str) -> dict[str, int]:
    """The class of each image of the split, by the image's name in the archive."""
    labels = _read_mat(label_file, "labels")
    numbers = _read_mat(setid_file, split)
    if numbers and not 1 <= min(numbers) <= max(numbers) <= len(labels):
        raise CorruptFileError(
            f"{setid_file}: {split} has images {min(numbers)} to {max(numbers)}, but {label_file.name} has"
            f" {len(labels)} labels; use files of one data set"
        )
    return {f"jpg/image_{number:05}.jpg": labels[number - 1] - 1 for number in numbers}


def _read_mat(path: Path, name: str) -> list[int]:
    import scipy.io  # takes 0.2 s: imported on first use

    try:
        return [int(value) for value in scipy.io.loadmat(path)[name].ravel()]
    except (KeyError, ValueError, TypeError, NotImplementedError, scipy.io.matlab.MatReadError) as e:
        raise CorruptFileError(f"{path} is not a .mat file with {name!r} ({e}); use the original file") from e


def _index(path: Path, labels: Mapping[str, int]) -> FlowersSplit:
    try:
        with tarfile.open(path, "r:") as archive:
            members = [m for m in archive if m.name in labels]
    except tarfile.TarError as e:
        raise CorruptFileError(f"{path} is not a tar archive ({e}); use the original files") from e
    if len(members) != len(labels):
        missing = sorted(set(labels) - {m.name for m in members})
        raise CorruptFileError(
            f"{path} lacks {len(missing)} of {len(labels)} images, first {missing[0]}; use the original files"
        )
    return FlowersSplit(
        path,
        tuple(m.name for m in members),
        tuple(labels[m.name] for m in members),
        tuple((m.offset_data, m.size) for m in members),
    )

"""The flowers: real files with their checksums, drawn ones, and reproducible crops."""

import itertools
import logging
import multiprocessing
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from argosy.engine.data import checked_files, flowers
from argosy.engine.errors import ConfigError, CorruptFileError, DataError, UnknownNameError

MakeFiles = Callable[[Path], dict[str, str]]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the whole drawn set; the folder of the real files is empty."""
    # Drawn once for all test runs of this user, in the cache of tests/examples.
    shared = Path(tempfile.gettempdir()) / f"argosy-tests-{os.getuid()}" / "dataset" / "flowers"
    flowers.open_split("valid", shared)
    folder = tmp_path_factory.mktemp("cache") / "dataset" / "flowers"
    shutil.copytree(shared.with_name("flowers-drawn"), folder.with_name("flowers-drawn"))
    return folder


def test_train_gives_flat_bgr_images_and_labels_from_zero(tmp_path: Path, make_flowers: MakeFiles) -> None:
    sums = make_flowers(tmp_path)
    samples = list(flowers.reader("tstid", True, folder=tmp_path, checksums=sums)())
    assert [label for _, label in samples] == [101, 76, 0, 6]  # in the order of the archive: 3, 1, 2, 7
    image = samples[0][0]
    assert (image.shape, image.dtype.name) == ((3 * 224 * 224,), "float32")
    blue, green, red = image.reshape(3, -1).mean(axis=1)
    assert (blue + 103.94, green + 116.78, red + 123.68) == pytest.approx((20, 100, 90), abs=3)


def test_the_other_splits_have_their_own_images(tmp_path: Path, make_flowers: MakeFiles) -> None:
    sums = make_flowers(tmp_path)
    labels = {s: flowers.open_split(s, tmp_path, sums).labels for s in ("trnid", "valid")}
    assert labels == {"trnid": (4, 4), "valid": (5,)}
    with pytest.raises(UnknownNameError, match="use one of tstid, trnid, valid"):
        flowers.open_split("train", tmp_path, sums)


def test_a_mapper_gets_the_jpeg_and_the_label(tmp_path: Path, make_flowers: MakeFiles) -> None:
    sums = make_flowers(tmp_path)

    def mapper(sample: tuple[bytes, int]) -> tuple[bytes, int]:
        return sample[0][:2], -sample[1]

    samples = list(flowers.reader("trnid", False, mapper=mapper, folder=tmp_path, checksums=sums)())
    assert samples == [(b"\xff\xd8", -4)] * 2


@pytest.mark.parametrize("name", ["102flowers.tgz", "imagelabels.mat", "setid.mat"])
def test_a_file_with_another_checksum_is_rejected_by_name(
    tmp_path: Path, make_flowers: MakeFiles, name: str
) -> None:
    sums = make_flowers(tmp_path)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptFileError, match=rf"{name} .*checksum .*replace it with the original"):
        flowers.open_split("tstid", tmp_path, sums)


def test_the_checksums_asked_for_are_those_of_paddle(tmp_path: Path, make_flowers: MakeFiles) -> None:
    make_flowers(tmp_path)
    with pytest.raises(CorruptFileError, match="not 52808999861908f626f3c1f4e79d11fa"):
        flowers.open_split("tstid", tmp_path)


def test_a_part_of_the_files_is_rejected(tmp_path: Path, make_flowers: MakeFiles) -> None:
    sums = make_flowers(tmp_path)
    (tmp_path / "setid.mat").unlink()
    with pytest.raises(DataError, match=r"without setid\.mat"):
        flowers.open_split("tstid", tmp_path, sums)


def test_files_that_do_not_belong_together_are_rejected(tmp_path: Path, make_flowers: MakeFiles) -> None:
    make_flowers(tmp_path)
    scipy.io.savemat(tmp_path / "setid.mat", {"tstid": np.array([[1, 99]], dtype=np.uint16)})
    sums = {p.name: checked_files._digest(p, "md5") for p in tmp_path.iterdir()}
    with pytest.raises(CorruptFileError, match=r"images 1 to 99, but imagelabels\.mat has 7 labels"):
        flowers.open_split("tstid", tmp_path, sums)
    with pytest.raises(CorruptFileError, match=r"setid\.mat is not a \.mat file with 'valid'"):
        flowers.open_split("valid", tmp_path, sums)


def test_an_archive_with_a_damaged_image_names_it(tmp_path: Path, make_flowers: MakeFiles) -> None:
    sums = make_flowers(tmp_path)
    split = flowers.open_split("valid", tmp_path, sums)
    reader = flowers.reader("valid", False, folder=tmp_path, checksums=sums)
    _overwrite(split.path, *split.places[0])
    with pytest.raises(CorruptFileError, match=r"image_00006\.jpg"):
        list(reader())


def test_an_unpacked_copy_that_was_changed_is_made_again(tmp_path: Path, make_flowers: MakeFiles) -> None:
    sums = make_flowers(tmp_path)
    split = flowers.open_split("valid", tmp_path, sums)
    _overwrite(split.path, *split.places[0])
    assert len(list(flowers.reader("valid", False, folder=tmp_path, checksums=sums)())) == 1


def _overwrite(path: Path, offset: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"?" * size)


def test_the_archive_is_unpacked_once(tmp_path: Path, make_flowers: MakeFiles) -> None:
    sums = make_flowers(tmp_path)
    states = []
    for split in flowers.SPLITS:
        path = flowers.open_split(split, tmp_path, sums).path
        states.append(path.stat().st_mtime_ns)
    assert len(set(states)) == 1


def test_crops_repeat_with_the_seed_whatever_the_threads(
    drawn: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def epoch(threads: str, seed: int, number: int) -> list[Any]:
        monkeypatch.setenv("CPU_NUM", threads)
        reader = flowers.reader("tstid", True, image_size=16, seed=seed, epoch=number, folder=drawn)
        return [image for image, _ in itertools.islice(reader(), 12)]

    def equal(a: list[Any], b: list[Any]) -> bool:
        return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))

    first = epoch("1", 0, 0)
    assert equal(first, epoch("4", 0, 0))
    assert not equal(first, epoch("1", 1, 0))
    assert not equal(first, epoch("1", 0, 1))


def test_a_second_epoch_crops_differently_and_can_be_resumed(drawn: Path) -> None:
    run = flowers.reader("tstid", True, image_size=16, folder=drawn)
    later = flowers.reader("tstid", True, image_size=16, folder=drawn, epoch=1)
    first, second, resumed = (next(iter(reader()))[0] for reader in (run, run, later))
    assert not np.array_equal(first, second)
    assert np.array_equal(second, resumed)


def test_a_cycle_restarts_after_the_last_image(tmp_path: Path, make_flowers: MakeFiles) -> None:
    sums = make_flowers(tmp_path)
    reader = flowers.reader("valid", False, cycle=True, image_size=8, folder=tmp_path, checksums=sums)
    assert [label for _, label in itertools.islice(reader(), 5)] == [5] * 5
    assert not [t for t in threading.enumerate() if t.name == "argosy-reader"]


@pytest.mark.parametrize("size", [1, 7, 32, 65])
def test_any_image_size_can_be_asked_for(tmp_path: Path, make_flowers: MakeFiles, size: int) -> None:
    sums = make_flowers(tmp_path)
    for is_train in (True, False):
        reader = flowers.reader("tstid", is_train, image_size=size, folder=tmp_path, checksums=sums)
        assert {image.size for image, _ in reader()} == {3 * size * size}
    with pytest.raises(ConfigError, match="image_size"):
        flowers.reader("tstid", True, image_size=0, folder=tmp_path, checksums=sums)


def test_the_generated_set_is_used_with_one_warning(drawn: Path, caplog: pytest.LogCaptureFixture) -> None:
    checked_files._warn_drawn.cache_clear()
    with caplog.at_level(logging.WARNING, logger="argosy"):
        sizes = [len(flowers.open_split(split, drawn)) for split in flowers.SPLITS]
    assert sizes == [2448, 1020, 1020]
    [message] = [r.getMessage() for r in caplog.records]
    assert "using the built-in drawn flowers" in message
    assert "\n" not in message


def test_a_damaged_drawn_set_is_rejected(drawn: Path) -> None:
    labels = drawn.with_name("flowers-drawn") / "imagelabels.mat"
    whole = labels.read_bytes()
    labels.write_bytes(whole[:-1])
    try:
        with pytest.raises(CorruptFileError, match=r"imagelabels\.mat .*delete the folder .*flowers-drawn"):
            flowers.open_split("valid", drawn)
    finally:
        labels.write_bytes(whole)
    flowers.open_split("valid", drawn)


def _count(folder: Path, sums: dict[str, str], results: Any) -> None:
    results.put(len(list(flowers.reader("tstid", False, image_size=8, folder=folder, checksums=sums)())))


def test_ranks_that_start_at_the_same_moment_share_the_files(tmp_path: Path, make_flowers: MakeFiles) -> None:
    sums = make_flowers(tmp_path)
    fork = multiprocessing.get_context("fork")
    results = fork.SimpleQueue()
    ranks = [fork.Process(target=_count, args=(tmp_path, sums, results)) for _ in range(3)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert [results.get() for _ in ranks] == [4, 4, 4]

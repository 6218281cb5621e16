"""MNIST: idx files with their checksums, and drawn digits in the same form."""

import gzip
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from argosy.engine.data import draw_digits, mnist
from argosy.engine.errors import CorruptFileError, DataError, UnknownNameError

MakeFiles = Callable[[Path], dict[str, str]]


def test_images_run_from_minus_one_to_one(tmp_path: Path, make_mnist: MakeFiles) -> None:
    sums = make_mnist(tmp_path)
    samples = list(mnist.reader("train", tmp_path, sums)())
    assert [label for _, label in samples] == [9, 8, 7]
    assert [(image.shape, image.dtype.name) for image, _ in samples] == [((784,), "float32")] * 3
    assert [float(image[0]) for image, _ in samples] == pytest.approx([-1, 100 / 127.5 - 1, 200 / 127.5 - 1])
    assert len(list(mnist.reader("t10k", tmp_path, sums)())) == 2


def test_an_unknown_set_is_rejected() -> None:
    with pytest.raises(UnknownNameError, match="use train or t10k"):
        mnist.reader("test")


def test_wrong_checksums_and_missing_files_are_named(tmp_path: Path, make_mnist: MakeFiles) -> None:
    make_mnist(tmp_path)
    with pytest.raises(CorruptFileError, match=r"train-images-idx3-ubyte\.gz"):
        mnist.reader("train", tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"without t10k-labels-idx1-ubyte\.gz"):
        mnist.reader("train", tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        b"no gzip",
        gzip.compress(b"")[:-3],
        gzip.compress(b"\0\0\x08"),
        gzip.compress(b"\0\0\x08\x01\0\0\0\x05ab"),
    ],
    ids=["no gzip", "truncated gzip", "truncated header", "too few values"],
)
def test_what_is_no_idx_file_is_rejected(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.gz").write_bytes(data)
    with pytest.raises(CorruptFileError, match=r"x\.gz"):
        mnist.read_idx(tmp_path / "x.gz", 1)


def test_the_generated_digits_are_used_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert draw_digits.SIZES == {"train": 12000, "t10k": 2000}
    fewer = partial(draw_digits.write_digits, sizes={"train": 3000, "t10k": 500})
    monkeypatch.setattr(draw_digits, "write_digits", fewer)
    folder = tmp_path / "mnist"
    with caplog.at_level(logging.WARNING, logger="argosy"):
        train, test = list(mnist.reader("train", folder)()), list(mnist.reader("t10k", folder)())
    assert len([r for r in caplog.records if "drawn digits" in r.getMessage()]) == 1
    assert (len(train), len(test)) == (3000, 500)
    # Linear regression to ten classes: the digits are not noise.
    x, y = (np.stack([image for image, _ in train]), np.array([label for _, label in train]))
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    weights = np.linalg.solve(x.T @ x + 10 * np.eye(785), x.T @ np.eye(10)[y])
    guesses = np.stack([np.append(image, 1) for image, _ in test]) @ weights
    assert np.mean(guesses.argmax(axis=1) == [label for _, label in test]) > 0.7


def test_the_drawn_files_are_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        draw_digits.write_digits(tmp_path / name, {"train": 20})
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()

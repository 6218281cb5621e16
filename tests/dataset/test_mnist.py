"""argosy.dataset.mnist: readers of the two sets."""

from pathlib import Path

import pytest

from argosy.dataset import mnist
from argosy.engine.data import checked_files, draw_digits


def test_train_and_test_read_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOSY_CACHE", str(tmp_path))

    def write(folder: Path) -> None:
        draw_digits.write_digits(folder, {"train": 30, "t10k": 20})

    checked_files.create_once(tmp_path / "dataset" / "mnist-drawn", draw_digits.VERSION, write)
    samples = list(mnist.train()())
    assert (len(samples), len(list(mnist.test()()))) == (30, 20)
    assert all(image.shape == (784,) and -1 <= image.min() < image.max() <= 1 for image, _ in samples)
    assert {label for _, label in samples} <= set(range(10))

"""Drawn flowers: the same every time, all classes, small, and different from each other."""

import hashlib
import tarfile
from pathlib import Path

import numpy as np
import scipy.io

from argosy.engine.data.draw_flowers import NUM_CLASSES, draw_flower, write_flowers

ONE_EACH = {"tstid": 1, "valid": 1}


def test_the_files_are_the_same_every_time(tmp_path: Path) -> None:
    digests = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write_flowers(tmp_path / name, ONE_EACH)
        files = sorted((tmp_path / name).iterdir())
        digests.append({p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files})
    assert set(digests[0]) == {"102flowers.tgz", "imagelabels.mat", "setid.mat"}
    assert digests[0] == digests[1]


def test_the_files_have_the_form_of_the_original(tmp_path: Path) -> None:
    write_flowers(tmp_path, ONE_EACH)
    with tarfile.open(tmp_path / "102flowers.tgz") as archive:
        names = archive.getnames()
    labels = scipy.io.loadmat(tmp_path / "imagelabels.mat")["labels"]
    splits = scipy.io.loadmat(tmp_path / "setid.mat")
    assert names == [f"jpg/image_{i:05}.jpg" for i in range(1, 205)]
    assert labels.shape == (1, 204)
    for split in ONE_EACH:
        assert sorted(labels[0][splits[split][0] - 1]) == list(range(1, NUM_CLASSES + 1))


def test_flowers_of_a_class_differ_and_lie_or_stand() -> None:
    images = [draw_flower(40, np.random.default_rng(i)) for i in range(20)]
    assert len({image.tobytes() for image in images}) == 20
    assert {image.width > image.height for image in images} == {True, False}
    assert all(72 <= min(image.size) <= max(image.size) <= 108 for image in images)

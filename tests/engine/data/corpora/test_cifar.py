"""CIFAR: pickled batches, of which only arrays and containers are unpickled."""

# SPDX-License-Identifier: Apache-2.0
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from argosy.engine.data.corpora.archives import write_tar
from argosy.engine.data.corpora.cifar import load
from argosy.engine.errors import CorruptFileError

# As Python 2 and NumPy 1 wrote the original files: string keys, and the old name of a module.
OLD = pickle.dumps({"data": np.arange(6144, dtype=np.uint8).reshape(2, 3072), "labels": [3, 1]}, protocol=2)
OLD = OLD.replace(b"numpy._core.multiarray", b"numpy.core.multiarray").replace(
    b"X\x04\x00\x00\x00data", b"U\x04data"
)
OLD = OLD.replace(b"X\x06\x00\x00\x00labels", b"U\x06labels")


def test_all_training_batches_are_read(tmp_path: Path) -> None:
    path = tmp_path / "cifar.tar.gz"
    files = {f"cifar-10-batches-py/data_batch_{i}": OLD for i in range(1, 6)}
    write_tar(path, {**files, "cifar-10-batches-py/batches.meta": b"not read"})
    images, labels = load(path, "cifar-10", "train")
    assert (images.shape, images.dtype, labels) == ((10, 3072), np.uint8, [3, 1] * 5)
    np.testing.assert_array_equal(images[9], np.arange(3072, 6144).astype(np.uint8))
    with pytest.raises(CorruptFileError, match="0 test images"):
        load(path, "cifar-10", "test")


class Attack:
    def __reduce__(self) -> Any:
        return os.getcwd, ()


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (pickle.dumps({b"data": Attack()}), "getcwd is not allowed"),
        (pickle.dumps({b"data": np.zeros((1, 3072), np.uint8)}, protocol=2), "fine_labels"),
        (b"not a pickle", "not a batch"),
    ],
    ids=["code", "no labels", "no pickle"],
)
def test_other_contents_raise(tmp_path: Path, batch: bytes, message: str) -> None:
    path = tmp_path / "cifar.tar.gz"
    write_tar(path, {"cifar-100-python/train": batch})
    with pytest.raises(CorruptFileError, match=message):
        load(path, "cifar-100", "train")

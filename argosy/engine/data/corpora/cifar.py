"""CIFAR-10 and CIFAR-100: pickled batches of 32 x 32 images in a tar archive.

Only arrays and plain containers are unpickled: a class or function of another module raises CorruptFileError.
"""

# SPDX-License-Identifier: Apache-2.0
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from argosy.engine.data.corpora.archives import members
from argosy.engine.errors import CorruptFileError

BATCHES = {
    ("cifar-10", "train"): r"cifar-10-batches-py/data_batch_[1-5]",
    ("cifar-10", "test"): r"cifar-10-batches-py/test_batch",
    ("cifar-100", "train"): r"cifar-100-python/train",
    ("cifar-100", "test"): r"cifar-100-python/test",
}
LABELS = {"cifar-10": b"labels", "cifar-100": b"fine_labels"}
_ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("_codecs", "encode"),
}


def load(path: Path, name: str, split: str) -> tuple[npt.NDArray[np.uint8], list[int]]:
    """(images [N, 3072], RGB plane by plane; labels) of `cifar-10` or `cifar-100`, `train` or `test`."""
    images: list[npt.NDArray[np.uint8]] = []
    labels: list[int] = []
    for file, data in members(path, BATCHES[name, split]):
        try:
            batch = _Unpickler(io.BytesIO(data), encoding="bytes").load()
            images.append(np.asarray(batch[b"data"], dtype=np.uint8).reshape(-1, 3072))
            labels.extend(int(label) for label in batch[LABELS[name]])
        except (pickle.UnpicklingError, KeyError, ValueError, TypeError, EOFError, AttributeError) as e:
            raise CorruptFileError(
                f"{path}: {file} is not a batch of {name} ({e}); use the original file"
            ) from e
    if not images or sum(map(len, images)) != len(labels):
        raise CorruptFileError(
            f"{path} has {sum(map(len, images))} {split} images and {len(labels)} labels; use the original file"
        )
    return np.concatenate(images), labels


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core.", "numpy._core.")  # the name before NumPy 2
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a data set")
        return super().find_class(module, name)

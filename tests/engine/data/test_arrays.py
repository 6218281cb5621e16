"""Numbers, lists and arrays as tensors."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from argosy.engine.data.arrays import to_tensor
from argosy.engine.errors import DataError


def test_big_endian_numbers_are_converted() -> None:
    assert to_tensor(np.arange(3, dtype=">i4"), "y").tolist() == [0, 1, 2]


def test_ragged_lists_are_rejected() -> None:
    with pytest.raises(DataError, match="different lengths"):
        to_tensor([[1], [1, 2]], "y")


def test_views_that_torch_dislikes_are_copied() -> None:
    array = np.arange(4)
    array.flags.writeable = False
    assert to_tensor(array, "y").tolist() == [0, 1, 2, 3]
    assert to_tensor(np.arange(4)[::-1], "y").tolist() == [3, 2, 1, 0]

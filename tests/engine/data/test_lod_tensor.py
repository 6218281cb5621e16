"""LoDTensor: Paddle's methods, levels that do not fit, concatenation, and how scripts create one."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from argosy.engine.data.lod_tensor import (
    LoDTensor,
    concatenated,
    create_lod_tensor,
    create_random_int_lodtensor,
)
from argosy.engine.errors import DataError


def test_offsets_and_lengths_describe_the_same_sequences() -> None:
    tensor = LoDTensor()
    tensor.set(np.arange(10, dtype="float32").reshape(5, 2), None)
    tensor.set_recursive_sequence_lengths([[2, 0, 3]])
    assert (tensor.lod(), tensor.recursive_sequence_lengths()) == ([[0, 2, 2, 5]], [[2, 0, 3]])
    assert (tensor.shape(), len(tensor), tensor.has_valid_recursive_sequence_lengths()) == ([5, 2], 3, True)
    tensor.set_lod([[0, 1, 2], [0, 2, 5]])
    assert (tensor.recursive_sequence_lengths(), len(tensor)) == ([[1, 1], [2, 3]], 2)
    np.testing.assert_array_equal(np.array(tensor, "int64"), np.arange(10).reshape(5, 2))
    assert "lod=[[0, 1, 2], [0, 2, 5]], shape=[5, 2]" in str(tensor)


def test_lengths_may_be_set_before_the_rows_and_are_checked_with_them() -> None:
    tensor = LoDTensor()
    tensor.set_recursive_sequence_lengths([[1, 1]])
    assert not tensor.has_valid_recursive_sequence_lengths()
    tensor.set([[1.0], [2.0]], None)
    assert tensor.has_valid_recursive_sequence_lengths()
    for lod, message in (
        ([[0, 3]], "the sequences of level 0 have 3 rows, and there are 2"),
        ([[0, 2, 1, 2]], "not ascending from 0"),
        ([[1, 2]], "not ascending from 0"),
        ([[0, 1], [0, 1, 2]], "level 0 have 1 sequences of level 1, and there are 2"),
    ):
        with pytest.raises(DataError, match=message):
            tensor.set_lod(lod)
    assert tensor.recursive_sequence_lengths() == [[1, 1]]


def test_lists_of_ids_become_rows_of_one_number() -> None:
    tensor = create_lod_tensor([[1, 2], [], [3]], [[2, 0, 1]])
    assert (tensor.rows.tolist(), tensor.lod()) == ([[1], [2], [3]], [[0, 2, 2, 3]])
    again = create_lod_tensor(tensor, [[1, 1], [2, 1]])
    assert again.lod() == [[0, 1, 2], [0, 2, 3]]
    assert create_lod_tensor(np.ones((3, 4)), [[1, 2]]).shape() == [3, 4]
    with pytest.raises(DataError, match=r"the sequences have the lengths \[2, 1\], .* give \[\[2, 1\]\]"):
        create_lod_tensor([[1, 2], [3]], [[3]])
    with pytest.raises(DataError, match="level 0 have 2 rows, and there are 3"):
        create_lod_tensor(np.ones((3, 4)), [[1, 1]])


def test_random_ids_include_both_bounds() -> None:
    tensor = create_random_int_lodtensor([[60, 40]], [2], None, low=3, high=4)
    assert (tensor.shape(), sorted(set(tensor.rows.flatten().tolist()))) == ([100, 2], [3, 4])
    with pytest.raises(DataError, match="recursive_seq_lens is empty"):
        create_random_int_lodtensor([], [1])


def test_batches_are_concatenated_level_by_level() -> None:
    parts = [
        create_lod_tensor(np.ones((3, 1)), [[2], [1, 2]]),
        create_lod_tensor(np.ones((1, 1)), [[1], [1]]),
    ]
    assert concatenated(parts).recursive_sequence_lengths() == [[2, 1], [1, 2, 1]]

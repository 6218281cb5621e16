"""Arrays of tensors: lists that are never mutated, and that only their own ops take."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from argosy.engine.errors import ProgramError
from argosy.engine.ops.op_spec import OpSpec
from argosy.engine.ops.tensor_array import array_length, array_new, array_read, array_write, is_array

new, write, read, length = (
    OpSpec.known[op].kernel for op in (array_new, array_write, array_read, array_length)
)


def test_a_write_returns_a_new_list() -> None:
    x, empty = torch.ones(2), new()
    first = write(empty, torch.tensor([0]), x)
    second = write(first, torch.tensor([1]), x * 2)
    other = write(second, torch.tensor([0]), x * 3)
    x.zero_()
    assert [length(array).item() for array in (empty, first, second, other)] == [0, 1, 2, 2]
    values = [read(array, torch.tensor([0]), [2], torch.float32).tolist() for array in (first, second, other)]
    assert values == [[1, 1], [1, 1], [3, 3]]


def test_wrong_indices_types_and_values_raise() -> None:
    array = write(new(), torch.tensor([0]), torch.ones(2))
    with pytest.raises(ProgramError, match="index 3 of an array of 1 tensors; use 0 to 1"):
        write(array, torch.tensor([3]), torch.ones(2))
    with pytest.raises(ProgramError, match="built for"):
        read(array, torch.tensor([0]), [3], torch.float32)
    with pytest.raises(ProgramError, match="was given Tensor; create_array"):
        length(torch.ones(2))
    assert is_array(torch.empty([0], dtype=torch.uint16))
    assert not is_array(torch.empty([0]))

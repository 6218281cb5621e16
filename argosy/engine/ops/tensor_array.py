"""Arrays of tensors (Paddle's LoDTensorArray): lists that grow while a step runs, as in a decoding loop.

    array = array_new()                      []
    array = array_write(array, i, x)         a list with x at index i; the other list stays as it is
    y = array_read(array, i, [N, 1], int64)

While a program is built, an array is a fake tensor of a type that no other value has. Its value in a step is a list, so
only these ops take it. Their kernels check that they are given one.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ProgramError
from argosy.engine.ops.op_spec import OpSpec, declare

_DTYPE = torch.uint16


def is_array(value: Tensor) -> bool:
    """True for the fake tensor of an array."""
    return value.dtype is _DTYPE and tuple(value.shape) == (0,)


def _new_fake() -> Tensor:
    return torch.empty([0], dtype=_DTYPE)


def _list(array: Any) -> list[Tensor]:
    if not isinstance(array, list):
        raise ProgramError(f"an op on arrays was given {type(array).__name__}; create_array makes an array")
    return array


def _index(op: str, array: list[Tensor], index: Tensor, end: int) -> int:
    number = int(index)
    if not 0 <= number < end:
        raise ProgramError(f"{op}: index {number} of an array of {len(array)} tensors; use 0 to {end - 1}")
    return number


def _write(array: Any, index: Tensor, x: Tensor) -> list[Tensor]:
    values = list(_list(array))
    number = _index("array_write", values, index, len(values) + 1)
    values[number : number + 1] = [x.clone()]  # x may be written to in place later
    return values


def _read(array: Any, index: Tensor, size: Sequence[int], dtype: torch.dtype) -> Tensor:
    values = _list(array)
    value = values[_index("array_read", values, index, len(values))]
    if list(value.shape) != list(size) or value.dtype != dtype:
        raise ProgramError(
            f"array_read: the element is {value.dtype}{list(value.shape)}, and the program was built for "
            f"{dtype}{list(size)}"
        )
    return value.clone()


def _length(array: Any) -> Tensor:
    return torch.tensor([len(_list(array))])


def _length_fake(array: Tensor) -> Tensor:
    return torch.empty([1], dtype=torch.int64)


array_new = declare("array_new() -> Tensor", list, _new_fake)
array_write = declare(
    "array_write(Tensor array, Tensor index, Tensor x) -> Tensor", _write, lambda array, index, x: _new_fake()
)
array_read = declare(
    "array_read(Tensor array, Tensor index, SymInt[] size, ScalarType dtype) -> Tensor",
    _read,
    lambda array, index, size, dtype: torch.empty(size, dtype=dtype),
)
array_length = declare("array_length(Tensor array) -> Tensor", _length, _length_fake)

SPECS = [
    OpSpec(array_new, list),
    OpSpec(array_write, _write),
    OpSpec(array_read, _read),
    OpSpec(array_length, _length),
]

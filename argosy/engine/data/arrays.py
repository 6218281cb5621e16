"""Numbers, lists and arrays as tensors; conversion of dtypes without silent loss."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import torch

from argosy.engine.errors import DataError


def to_tensor(value: Any, name: str, copy: bool = False) -> torch.Tensor:
    """A number, list, array or tensor as a tensor on the CPU; anything else is rejected by name."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if copy else value.detach()
    _check_mask(value, name)
    try:
        array = np.array(value) if copy else np.asarray(value)
    except ValueError as e:
        raise DataError(f"{name!r}: nested lists of different lengths are not an array; pad them") from e
    is_huge = array.dtype == np.uint64 and not isinstance(value, np.ndarray)  # a list with 2**63, say
    if array.dtype.kind not in "biufc" or is_huge:
        raise DataError(f"{name!r}: {_not_numbers(value, array)}")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()  # torch warns about the former and rejects the latter
    try:
        return torch.from_numpy(array)
    except TypeError as e:
        raise DataError(
            f"{name!r}: torch cannot take an array of {array.dtype}; convert it, for example to int64 or float64"
        ) from e


def converted(tensor: torch.Tensor, dtype: torch.dtype, name: str) -> torch.Tensor:
    """The tensor in another dtype; floats are rounded, any other loss is rejected by name."""
    if not _fits(tensor, dtype):
        before, after = (str(kind).removeprefix("torch.") for kind in (tensor.dtype, dtype))
        raise DataError(
            f"{name!r}: values of {before} do not fit into {after} without loss (fractions, or out of range); change "
            "the values, or the variable's dtype"
        )
    return tensor.to(dtype)


def _fits(tensor: torch.Tensor, dtype: torch.dtype) -> bool:
    if tensor.dtype == dtype or dtype.is_complex:
        return True
    if tensor.is_complex():
        return False
    if dtype.is_floating_point:
        return True
    if tensor.dtype is torch.uint64 and bool((tensor.view(torch.int64) < 0).any()):
        return False  # beyond int64: the round trip below would not detect it
    return torch.equal(tensor.to(dtype).to(tensor.dtype), tensor)


def _check_mask(value: Any, name: str) -> None:
    """Raise for masked values: NumPy silently drops the mask when it creates a plain array."""
    for array in value if isinstance(value, list | tuple) else (value,):
        if isinstance(array, np.ma.MaskedArray) and (masked := int(np.sum(array.mask))):
            raise DataError(
                f"{name!r}: {masked} of {array.size} values are masked; fill them (array.filled(0)), or leave them out"
            )


def _not_numbers(value: Any, array: np.ndarray[Any, Any]) -> str:
    if any(isinstance(item, int | np.integer) and not -(1 << 63) <= item < 1 << 63 for item in array.flat):
        return "there are integers beyond int64; hash them, or give floats"
    return f"a value of type {type(value).__name__} ({array.dtype}) is not an array of numbers; encode it as numbers"

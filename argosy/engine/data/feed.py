"""Convert the output of a reader to tensors with the dtypes and shapes of the feed variables."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from argosy.engine.errors import ArgumentTypeError, ConfigError, DataError


class FeedVariable(Protocol):
    """The part of a program's Variable that feeding needs; -1 in the shape is an unknown size."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> Sequence[int | None]: ...
    @property
    def dtype(self) -> torch.dtype: ...


class FeedReader(Protocol):
    """A data loader that an executor takes feeds from."""

    @property
    def feed_names(self) -> tuple[str, ...]:
        """The names of the feed variables."""
        ...

    @property
    def is_started(self) -> bool:
        """True between `start` and `reset`."""
        ...

    def next_feed(self) -> Mapping[str, Any]:
        """The next batch, by the names of the feed variables; raises EOFException at the end."""
        ...


@dataclass(frozen=True)
class FeedSpec:
    """Name, shape (first dimension: the batch; -1: any size) and dtype of one feed variable."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, variable: FeedVariable) -> "FeedSpec":
        shape = tuple(-1 if size is None else int(size) for size in variable.shape)
        return cls(variable.name, shape, variable.dtype)

    def from_samples(self, values: Sequence[Any]) -> torch.Tensor:
        """One batch of single samples."""
        tensors = [to_tensor(value, self.name) for value in values]
        if others := [i for i, t in enumerate(tensors) if t.shape != tensors[0].shape]:
            raise DataError(
                f"feed variable {self.name!r}: sample 0 of a batch has shape {tuple(tensors[0].shape)},"
                f" sample {others[0]} has {tuple(tensors[others[0]].shape)}; samples of one batch need one"
                " shape: pad or crop them in the reader"
            )
        shape = self._sample_shape(tuple(tensors[0].shape))
        return self._checked(torch.stack(tensors).reshape(len(tensors), *shape))

    def from_batch(self, value: Any, copy: bool = True) -> torch.Tensor:
        """A batch as the reader gives it; its first dimension counts the samples.

        It is copied, because a reader may reuse one array for all batches.
        """
        tensor = to_tensor(value, self.name, copy)
        if tensor.ndim == 0:
            raise DataError(
                f"feed variable {self.name!r}: a batch is a single number; give an array whose first"
                " dimension counts the samples"
            )
        return self._checked(tensor.reshape(len(tensor), *self._sample_shape(tuple(tensor.shape[1:]))))

    def _sample_shape(self, actual: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that a sample of shape `actual` takes in the batch.

        With the expected number of dimensions, each must match: height and width are not swapped silently.
        With another number of dimensions, the data is reshaped.
        """
        expected = self.shape[1:]
        if len(actual) == len(expected):
            if all(e in (-1, a) for e, a in zip(expected, actual, strict=True)):
                return actual
        elif expected.count(-1) <= 1:
            known = int(np.prod([e for e in expected if e != -1], dtype=np.int64))
            size = int(np.prod(actual, dtype=np.int64))
            rest = size // known if known else 0
            if size == known * (rest if -1 in expected else 1):
                return tuple(rest if e == -1 else e for e in expected)
        raise DataError(
            f"feed variable {self.name!r}: a sample has shape {actual}, the variable of shape {self.shape}"
            f" expects {expected}; change the reader, or the shape the variable is declared with"
        )

    def _checked(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.shape and self.shape[0] not in (-1, len(tensor)):
            raise DataError(
                f"feed variable {self.name!r}: a batch has {len(tensor)} samples, the variable of shape"
                f" {self.shape} expects {self.shape[0]}; change the batch size, or declare the first"
                " dimension as None"
            )
        return converted(tensor, self.dtype, self.name)


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


def fields_of(sample: Any, names: Sequence[str]) -> Sequence[Any]:
    """The fields of a sample or batch in the order of `names`; with one name, a value that is no tuple is the field."""
    if isinstance(sample, Mapping):
        if missing := [name for name in names if name not in sample]:
            raise DataError(f"the reader gave {sorted(sample)}, without {missing}; yield every feed variable")
        return [sample[name] for name in names]
    if not isinstance(sample, tuple | list):
        sample = (sample,)
    if len(sample) != len(names):
        raise DataError(
            f"the reader gave {len(sample)} fields, the feed list has {len(names)} ({', '.join(names)});"
            " yield one tuple with a field for each"
        )
    return sample  # type: ignore[no-any-return]  # a tuple or list of Any


def specs_of(feed_list: Sequence[FeedVariable] | None) -> tuple[FeedSpec, ...]:
    """The specs of a feed list; raises ConfigError for a duplicate name."""
    if feed_list is not None and not isinstance(feed_list, tuple | list):
        raise ArgumentTypeError(f"feed_list is {type(feed_list).__name__}; give a list of variables")
    specs = tuple(FeedSpec.of(variable) for variable in feed_list or ())
    names = [spec.name for spec in specs]
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"feed_list has {duplicates} more than once; give each variable once")
    return specs


def check_places(places: Any) -> None:
    """Raise for more than one place: one process feeds one place, the others would get no data."""
    if isinstance(places, tuple | list) and len(places) > 1:
        raise ConfigError(
            f"{len(places)} places for one loader; a process trains on one place: give one,"
            " and start more processes with fleetrun"
        )

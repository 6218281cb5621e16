"""Convert the output of a reader to tensors with the dtypes and shapes of the feed variables."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from argosy.engine.data.arrays import converted, to_tensor
from argosy.engine.data.lod_tensor import LoDTensor
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
    lod_level: int = 0
    """Levels of sequences: a sample of level 1 is a list of rows, one of level 2 a list of such lists."""

    @classmethod
    def of(cls, variable: FeedVariable) -> "FeedSpec":
        shape = tuple(-1 if size is None else int(size) for size in variable.shape)
        return cls(variable.name, shape, variable.dtype, getattr(variable, "lod_level", 0))

    def from_samples(self, values: Sequence[Any]) -> torch.Tensor | LoDTensor:
        """One batch of single samples."""
        if self.lod_level:
            return self._from_sequences(values)
        tensors = [to_tensor(value, self.name) for value in values]
        if others := [i for i, t in enumerate(tensors) if t.shape != tensors[0].shape]:
            raise DataError(
                f"feed variable {self.name!r}: sample 0 of a batch has shape {tuple(tensors[0].shape)},"
                f" sample {others[0]} has {tuple(tensors[others[0]].shape)}; samples of one batch need one"
                " shape: pad or crop them in the reader, or declare the variable with lod_level=1"
            )
        shape = self._sample_shape(tuple(tensors[0].shape))
        return self._checked(torch.stack(tensors).reshape(len(tensors), *shape))

    def _from_sequences(self, values: Sequence[Any]) -> LoDTensor:
        """One batch of sequences of different lengths: their rows, concatenated, and the lengths of each level."""
        lengths = []
        for _ in range(self.lod_level - 1):
            lengths.append([len(value) for value in values])
            values = [inner for value in values for inner in value]
        tensors = [to_tensor(value, self.name) for value in values]
        row = self.shape[1:]
        width = math.prod(row)
        for number, tensor in enumerate(tensors):
            if width < 1 or tensor.numel() % width:
                raise DataError(
                    f"feed variable {self.name!r}: sequence {number} of a batch has {tensor.numel()} values, and a row "
                    f"of the variable has the shape {list(row)}; give whole rows, and the variable known sizes"
                )
        lengths.append([tensor.numel() // width for tensor in tensors])
        parts = [converted(tensor, self.dtype, self.name).reshape(-1, *row) for tensor in tensors]
        return LoDTensor.of_lengths(torch.cat(parts), lengths)

    def from_batch(self, value: Any, copy: bool = True) -> torch.Tensor | LoDTensor:
        """A batch as the reader gives it; its first dimension counts the samples. A LoDTensor is taken as it is.

        An array is copied, because a reader may reuse one array for all batches.
        """
        if isinstance(value, LoDTensor):
            return value
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

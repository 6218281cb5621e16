"""Make what a reader gives into what a program wants: tensors of the feed variables' dtype and shape."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from argosy.engine.errors import ConfigError, DataError


class FeedVariable(Protocol):
    """The part of a program's Variable that feeding needs; -1 in the shape is an unknown size."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> Sequence[int | None]: ...
    @property
    def dtype(self) -> torch.dtype: ...


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
        """A batch that the reader has put together; its first dimension counts the samples.

        It is copied, because a reader may use one array for all its batches.
        """
        tensor = to_tensor(value, self.name, copy)
        if tensor.ndim == 0:
            raise DataError(
                f"feed variable {self.name!r}: a batch is a single number; give an array whose first"
                " dimension counts the samples"
            )
        return self._checked(tensor.reshape(len(tensor), *self._sample_shape(tuple(tensor.shape[1:]))))

    def _sample_shape(self, found: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that a sample of shape `found` takes in the batch.

        With as many dimensions as wanted, each must fit: height and width are not swapped in silence.
        With another number of dimensions, it is the same data written flat (or folded) and reshaped.
        """
        wanted = self.shape[1:]
        if len(found) == len(wanted):
            if all(w in (-1, f) for w, f in zip(wanted, found, strict=True)):
                return found
        elif wanted.count(-1) <= 1:
            known = int(np.prod([w for w in wanted if w != -1], dtype=np.int64))
            size = int(np.prod(found, dtype=np.int64))
            rest = size // known if known else 0
            if size == known * (rest if -1 in wanted else 1):
                return tuple(rest if w == -1 else w for w in wanted)
        raise DataError(
            f"feed variable {self.name!r}: a sample has shape {found}, the variable of shape {self.shape}"
            f" wants {wanted}; change the reader, or the shape the variable is declared with"
        )

    def _checked(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.shape and self.shape[0] not in (-1, len(tensor)):
            raise DataError(
                f"feed variable {self.name!r}: a batch has {len(tensor)} samples, the variable of shape"
                f" {self.shape} wants {self.shape[0]}; change the batch size, or declare the first"
                " dimension as None"
            )
        converted = tensor.to(self.dtype)
        rounds = self.dtype.is_floating_point or self.dtype.is_complex or self.dtype == tensor.dtype
        if not rounds and not torch.equal(converted.to(tensor.dtype), tensor):
            raise DataError(
                f"feed variable {self.name!r}: values of {tensor.dtype} do not fit into {self.dtype} without"
                " loss (fractions, or out of range); change the reader, or the variable's dtype"
            )
        return converted


def to_tensor(value: Any, name: str, copy: bool = False) -> torch.Tensor:
    """A number, list, array or tensor as a tensor on the CPU; anything else is refused by name."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if copy else value.detach()
    try:
        array = np.array(value) if copy else np.asarray(value)
    except ValueError as e:
        raise DataError(f"{name!r}: nested lists of different lengths are no array; pad them") from e
    if array.dtype.kind not in "biufc":
        raise DataError(
            f"{name!r}: a value of type {type(value).__name__} ({array.dtype}) is no array of numbers;"
            " encode it as numbers in the reader"
        )
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()  # torch warns about the one and refuses the other
    return torch.from_numpy(array)


def fields_of(sample: Any, names: Sequence[str]) -> Sequence[Any]:
    """The fields of a sample or batch in the order of `names`; with one name it may stand alone."""
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
    """The specs of a feed list; a name that stands twice is refused."""
    if feed_list is not None and not isinstance(feed_list, tuple | list):
        raise ConfigError(f"feed_list is {type(feed_list).__name__}; give a list of variables")
    specs = tuple(FeedSpec.of(variable) for variable in feed_list or ())
    names = [spec.name for spec in specs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"feed_list names {twice} more than once; give each variable once")
    return specs


def check_places(places: Any) -> None:
    """One process feeds one place: more are refused, since they would get no data."""
    if isinstance(places, tuple | list) and len(places) > 1:
        raise ConfigError(
            f"{len(places)} places for one loader; a process trains on one place: give one,"
            " and start more processes with fleetrun"
        )

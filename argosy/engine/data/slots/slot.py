"""A slot: one of the named lists of numbers in every record, and the variable that it feeds."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from argosy.engine.data.feed import FeedVariable
from argosy.engine.data.lod_tensor import LoDTensor
from argosy.engine.errors import ConfigError, DataError

Array = np.ndarray[Any, Any]
_DTYPES = {torch.float32: True, torch.int64: False}


class SlotVariable(FeedVariable, Protocol):
    """The part of a program's Variable that a slot needs."""

    @property
    def lod_level(self) -> int: ...


@dataclass(frozen=True)
class SlotSpec:
    """Name, dtype and shape of one slot."""

    name: str
    is_float: bool
    """float32, else int64."""
    shape: tuple[int, ...]
    """Of the variable; -1: any size."""
    is_sequence: bool = False
    """lod_level 1: a record has any number of rows, and a batch is a LoDTensor."""

    @classmethod
    def of(cls, variable: SlotVariable) -> "SlotSpec":
        shape = tuple(-1 if size is None else int(size) for size in variable.shape)
        if variable.dtype not in _DTYPES:
            raise ConfigError(f"use_var {variable.name!r} is {variable.dtype}; a slot is float32 or int64")
        if not shape or shape[1:].count(-1) > 1:
            raise ConfigError(
                f"use_var {variable.name!r} has shape {list(shape)}; "
                "use one with a batch and at most one other unknown size"
            )
        if variable.lod_level > 1 or (variable.lod_level and -1 in shape[1:]):
            raise ConfigError(
                f"use_var {variable.name!r} has lod_level {variable.lod_level} and shape {list(shape)}; a slot of "
                "sequences has lod_level 1 and known sizes but the first"
            )
        return cls(variable.name, _DTYPES[variable.dtype], shape, variable.lod_level > 0)

    def shaped(self, values: Array, rows: int) -> Array:
        """The values of a batch, equally many for each of `rows` records, in the shape of the variable."""
        wanted, count = self.shape[1:], values.size // rows
        known = math.prod(size for size in wanted if size != -1)
        rest, over = divmod(count, known)
        if over == 0 and -1 in wanted:
            return values.reshape(rows, *(rest if size == -1 else size for size in wanted))
        if over == 0 and rest == 1:
            return values.reshape(rows, *wanted)
        raise DataError(
            f"slot {self.name!r}: a record has {count} values, the variable of shape {list(self.shape)} expects "
            f"{known}; change the data generator, or the variable's shape"
        )

    def sequences(self, values: Array, counts: Array) -> LoDTensor:
        """The values of a batch as sequences; `counts` has the number of values of each record."""
        wanted = self.shape[1:]
        lengths, over = np.divmod(counts, math.prod(wanted))
        if over.any():
            raise DataError(
                f"slot {self.name!r}: a record has {counts[over > 0][0]} values, the rows of the variable of shape "
                f"{list(self.shape)} have {math.prod(wanted)}; change the data generator, or the variable's shape"
            )
        return LoDTensor.of_lengths(values.reshape(-1, *wanted), [lengths])

    def uneven(self, counts: Array) -> DataError:
        """The error for records that have different numbers of values."""
        return DataError(
            f"slot {self.name!r}: records of one batch have {counts.min()} to {counts.max()} values; declare its "
            "variable with lod_level=1, or pad them to one length in the data generator"
        )


def slots_of(variables: Sequence[SlotVariable]) -> tuple[SlotSpec, ...]:
    """The slots of a list of variables, in its order, which is also their order in the text."""
    if not isinstance(variables, list | tuple) or not variables:
        raise ConfigError(f"use_var is {variables!r}; give the list of variables that the records feed")
    slots = tuple(SlotSpec.of(variable) for variable in variables)
    names = [slot.name for slot in slots]
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"use_var has {duplicates} more than once; give each variable once")
    return slots

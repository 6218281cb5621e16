"""LoDTensor: a batch of sequences of different lengths, as their concatenated rows and offsets.

    sequences [[1, 2], [], [3, 4, 5]]      rows [5, 1]      offsets [0, 2, 2, 5]

Several levels nest: the offsets of a level count the sequences of the next one, those of the last level count rows.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from argosy.engine.data.arrays import to_tensor
from argosy.engine.errors import DataError

Offsets = np.ndarray[Any, np.dtype[np.int64]]


class LoDTensor:
    """Rows and, for each level, the offsets of its sequences; Paddle's class of this name."""

    def __init__(self, rows: Any = None, offsets: Sequence[Offsets] = ()) -> None:
        self.rows: torch.Tensor = torch.empty(0) if rows is None else to_tensor(rows, "LoDTensor")
        """All rows, concatenated along the first dimension."""
        self.offsets: tuple[Offsets, ...] = tuple(offsets)
        """From the outermost level to the innermost, each [sequences + 1], starting with 0."""

    @classmethod
    def of_lengths(cls, rows: Any, lengths: Sequence[Any]) -> "LoDTensor":
        """From the lengths of the sequences of each level; raises DataError if they do not fit the rows."""
        tensor = cls(rows, [_offsets(level) for level in lengths])
        if problem := tensor.problem():
            raise DataError(f"{problem}; give the lengths of the sequences of each level")
        return tensor

    # --- Paddle's methods -----------------------------------------------------------------------------

    def set(self, array: Any, place: Any = None) -> None:
        """Replace the rows by a copy of the array; the offsets stay."""
        self.rows = to_tensor(array, "LoDTensor", copy=True)

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Set the offsets of each level: [[0, 2, 2, 5]]."""
        self._set([np.asarray(level, np.int64) for level in lod])

    def set_recursive_sequence_lengths(self, recursive_sequence_lengths: Sequence[Sequence[int]]) -> None:
        """Set the lengths of the sequences of each level: [[2, 0, 3]]."""
        self._set([_offsets(level) for level in recursive_sequence_lengths])

    def lod(self) -> list[list[int]]:
        """The offsets of each level."""
        return [level.tolist() for level in self.offsets]

    def recursive_sequence_lengths(self) -> list[list[int]]:
        """The lengths of the sequences of each level."""
        return [lengths.tolist() for lengths in self.lengths()]

    def has_valid_recursive_sequence_lengths(self) -> bool:
        """True if the offsets of each level fit the next level, and those of the last one the rows."""
        return not self.problem()

    def shape(self) -> list[int]:
        """The shape of the rows."""
        return list(self.rows.shape)

    # --- for feeding ----------------------------------------------------------------------------------

    def lengths(self) -> list[Offsets]:
        """The lengths of the sequences of each level, as arrays."""
        return [np.diff(level) for level in self.offsets]

    def problem(self) -> str:
        """Why the offsets do not fit the rows, or an empty string."""
        counts = [len(level) - 1 for level in self.offsets[1:]]
        counts.append(len(self.rows) if self.rows.ndim else 0)
        for number, (level, count) in enumerate(zip(self.offsets, counts, strict=False)):
            what = "rows" if number == len(self.offsets) - 1 else f"sequences of level {number + 1}"
            if level.ndim != 1 or not len(level) or level[0] != 0 or (np.diff(level) < 0).any():
                return f"the offsets of level {number} are {level.tolist()}, not ascending from 0"
            if level[-1] != count:
                return f"the sequences of level {number} have {level[-1]} {what}, and there are {count}"
        return ""

    def __len__(self) -> int:
        """The number of sequences of the outermost level; without levels, of rows."""
        return len(self.offsets[0]) - 1 if self.offsets else len(self.rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.rows.numpy(force=True)
        return np.array(array, dtype=dtype) if copy or dtype is not None else array

    def __repr__(self) -> str:
        return (
            f"LoDTensor(lod={self.lod()}, shape={self.shape()}, dtype={self.rows.dtype},\n{np.array(self)})"
        )

    def _set(self, offsets: list[Offsets]) -> None:
        tensor = LoDTensor(self.rows, offsets)
        # A script may set the lengths before the rows: the rows are checked when they are fed.
        if (self.rows.numel() or self.rows.ndim != 1) and (problem := tensor.problem()):
            raise DataError(f"LoDTensor: {problem}")
        self.offsets = tensor.offsets


class LoDTensorArray(list[LoDTensor]):
    """A list of LoDTensors; Paddle's class of this name."""


def concatenated(parts: Sequence[LoDTensor]) -> LoDTensor:
    """One batch of the sequences of all parts, which have the same number of levels."""
    lengths = [np.concatenate(levels) for levels in zip(*(part.lengths() for part in parts), strict=True)]
    return LoDTensor.of_lengths(torch.cat([part.rows for part in parts]), lengths)


def create_lod_tensor(data: Any, recursive_seq_lens: Sequence[Sequence[int]], place: Any = None) -> LoDTensor:
    """A LoDTensor of an array of rows, or of a list of sequences of integers, which become rows of shape [1]."""
    if isinstance(data, LoDTensor):
        return LoDTensor.of_lengths(data.rows, recursive_seq_lens)
    if isinstance(data, list):
        lengths = [len(sequence) for sequence in data]
        if not recursive_seq_lens or list(recursive_seq_lens[-1]) != lengths:
            raise DataError(
                f"create_lod_tensor: the sequences have the lengths {lengths}, and recursive_seq_lens is "
                f"{recursive_seq_lens}; give [{lengths}]"
            )
        flat = [np.asarray(sequence, np.int64).reshape(-1) for sequence in data]
        data = np.concatenate([np.empty(0, np.int64), *flat]).reshape(-1, 1)
    return LoDTensor.of_lengths(data, recursive_seq_lens)


def create_random_int_lodtensor(
    recursive_seq_lens: Sequence[Sequence[int]],
    base_shape: Sequence[int],
    place: Any = None,
    low: int = 0,
    high: int = 1,
) -> LoDTensor:
    """A LoDTensor of random int64 numbers from low to high, both included; a row has the shape `base_shape`."""
    if not recursive_seq_lens:
        raise DataError(
            "create_random_int_lodtensor: recursive_seq_lens is empty; give the lengths: [[2, 3]]"
        )
    shape = (sum(recursive_seq_lens[-1]), *base_shape)
    return LoDTensor.of_lengths(np.random.randint(low, high + 1, shape, np.int64), recursive_seq_lens)


def _offsets(lengths: Any) -> Offsets:
    counts = np.asarray(lengths, np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])

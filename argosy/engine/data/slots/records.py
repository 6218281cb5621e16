"""Many records in few arrays.

    counts   [records, slots]   how many values each slot of each record has
    ints     all integers, record by record, slot by slot
    floats   all floats, likewise

If all records have the same counts, `ints` and `floats` can be viewed as matrices, and a batch is a few rows of them.
"""

# SPDX-License-Identifier: Apache-2.0
import struct
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from argosy.engine.data.slots.slot import Array, SlotSpec
from argosy.engine.errors import DataError

_HEADER = struct.Struct("<qqq")
Rows = Array | slice


class Records:
    """Records of one list of slots; immutable."""

    def __init__(self, slots: tuple[SlotSpec, ...], counts: Array, ints: Array, floats: Array) -> None:
        self.slots, self.ints, self.floats = slots, ints, floats
        self.is_even = len(counts) > 0 and bool((counts == counts[0]).all())
        """True: all records have the same counts, of which one row is stored."""
        self.counts = np.broadcast_to(counts[0].copy(), counts.shape) if self.is_even else counts

    def __len__(self) -> int:
        return len(self.counts)

    @classmethod
    def empty(cls, slots: tuple[SlotSpec, ...]) -> "Records":
        """No records."""
        return cls(slots, np.empty((0, len(slots)), np.int32), np.empty(0, np.int64), np.empty(0, np.float32))

    @classmethod
    def concat(cls, slots: tuple[SlotSpec, ...], parts: Sequence["Records"]) -> "Records":
        """Concatenate the records of all parts."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.empty(slots)
        return cls(
            slots,
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.ints for part in parts]),
            np.concatenate([part.floats for part in parts]),
        )

    def take(self, rows: Rows) -> "Records":
        """These records, in this order."""
        counts = self.counts[rows]
        ints, floats = (self._values(is_float, rows).reshape(-1) for is_float in (False, True))
        return Records(self.slots, counts, ints, floats)

    def with_slot_from(self, name: str, rows: Array) -> "Records":
        """Record i with the values of this slot taken from record rows[i]."""
        identity = np.arange(len(self))
        parts = [(rows if slot.name == name else identity) for slot in self.slots]
        counts = np.stack([self.counts[r, i] for i, r in enumerate(parts)], axis=1)
        columns: list[Array] = []
        for is_float, values in ((False, self.ints), (True, self.floats)):
            indices = [i for i, slot in enumerate(self.slots) if slot.is_float is is_float]
            starts = np.stack([self._starts[parts[i], i] for i in indices] or [identity[:0]], axis=-1)
            columns.append(values[_spans(starts.reshape(-1), counts[:, indices].reshape(-1))])
        return Records(self.slots, counts, *columns)

    def batch(self, rows: Rows) -> dict[str, Any]:
        """The values of these records by the names of the slots, in the shapes of the variables.

        Those of a slot of sequences are a LoDTensor.
        """
        counts = self.counts[rows]
        number = len(counts)
        batch: dict[str, Any] = {}
        for slot, values, has in zip(self.slots, self._columns(rows, counts), counts.T, strict=True):
            if slot.is_sequence:
                batch[slot.name] = slot.sequences(values, has)
                continue
            if not self.is_even and (has != has[0]).any():
                raise slot.uneven(has)
            batch[slot.name] = slot.shaped(values, number)
        return batch

    def _columns(self, rows: Rows, counts: Array) -> list[Array]:
        """The values of each slot, record by record."""
        if not self.is_even:
            starts = self._starts[rows]
            return [
                (self.floats if slot.is_float else self.ints)[_spans(starts[:, i], counts[:, i])]
                for i, slot in enumerate(self.slots)
            ]
        matrices = {is_float: self._values(is_float, rows) for is_float in (False, True)}
        first = {False: 0, True: 0}
        columns = []
        for slot, count in zip(self.slots, counts[0].tolist(), strict=True):
            begin = first[slot.is_float]
            first[slot.is_float] = begin + count
            columns.append(matrices[slot.is_float][:, begin : begin + count].copy())
        return columns

    def _values(self, is_float: bool, rows: Rows) -> Array:
        """All ints or floats of these records; as a matrix, if all records have equally many."""
        values = self.floats if is_float else self.ints
        if self.is_even:
            return values.reshape(len(self), -1)[rows] if values.size else values.reshape(len(self), 0)[rows]
        same_dtype = [slot.is_float is is_float for slot in self.slots]
        ends = np.cumsum(sizes := self.counts[:, same_dtype].sum(axis=1, dtype=np.int64))
        return values[_spans((ends - sizes)[rows], sizes[rows])]

    @cached_property
    def _starts(self) -> Array:
        """The index in `ints` or `floats` at which the values of each slot of each record begin."""
        starts = np.empty(self.counts.shape, np.int64)
        for is_float in (False, True):
            same_dtype = [slot.is_float is is_float for slot in self.slots]
            sizes = self.counts[:, same_dtype]
            starts[:, same_dtype] = np.cumsum(sizes.reshape(-1), dtype=np.int64).reshape(sizes.shape) - sizes
        return starts

    def to_bytes(self) -> bytes:
        """Serialize the records for another process of the same job."""
        header = _HEADER.pack(len(self), self.ints.size, self.floats.size)
        return b"".join((header, self.counts.tobytes(), self.ints.tobytes(), self.floats.tobytes()))

    @classmethod
    def from_bytes(cls, slots: tuple[SlotSpec, ...], data: bytes) -> "Records":
        """The inverse of `to_bytes`, for the same slots."""
        number, ints, floats = _HEADER.unpack_from(data) if len(data) >= _HEADER.size else (-1, 0, 0)
        sizes = [number * len(slots) * 4, ints * 8, floats * 4]
        if number < 0 or len(data) != _HEADER.size + sum(sizes):
            raise DataError(
                f"another worker sent {len(data)} bytes that are not records of {len(slots)} slots; give all workers "
                "the same use_var"
            )
        ends = np.cumsum([_HEADER.size, *sizes]).tolist()
        counts = np.frombuffer(data, np.int32, number * len(slots), ends[0]).reshape(number, len(slots))
        return cls(
            slots,
            counts,
            np.frombuffer(data, np.int64, ints, ends[1]),
            np.frombuffer(data, np.float32, floats, ends[2]),
        )


def _spans(starts: Array, counts: Array) -> Array:
    """The indices starts[0], starts[0] + 1, … of counts[0] values, then those of the next span."""
    ends = np.cumsum(counts, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - counts), counts)

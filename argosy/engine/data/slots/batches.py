"""Batches of records: one array for each slot."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable, Iterator
from typing import Any

from argosy.engine.data.slots.read import RecordStream
from argosy.engine.data.slots.records import Records
from argosy.engine.data.slots.slot import Array, SlotSpec

Batch = dict[str, Any]
"""By the names of the slots: arrays, and LoDTensors of slots of sequences."""


def batches_of_stream(slots: tuple[SlotSpec, ...], parts: Iterable[Records], size: int) -> Iterator[Batch]:
    """Batches of `size` records, as the parts arrive; the last may be smaller."""
    pending: list[Records] = []
    for part in parts:
        pending.append(part)
        if sum(map(len, pending)) >= size:
            records = Records.concat(slots, pending)
            whole = len(records) - len(records) % size
            for begin in range(0, whole, size):
                yield records.batch(slice(begin, begin + size))
            pending = [records.take(slice(whole, None))] if whole < len(records) else []
    if rest := Records.concat(slots, pending):
        yield rest.batch(slice(None))


class BatchStream(Iterator[Batch]):
    """The batches of a RecordStream; `close`, which any thread may call, stops its processes."""

    def __init__(self, slots: tuple[SlotSpec, ...], records: RecordStream, size: int) -> None:
        self._records, self._batches = records, batches_of_stream(slots, records, size)

    def __next__(self) -> Batch:
        return next(self._batches)

    def close(self) -> None:
        """Stop the readers; there are no more batches."""
        self._records.close()


def batches_in_order(records: Records, order: Array, size: int) -> Iterator[Batch]:
    """Batches of `size` of the records in this order; the last may be smaller."""
    for begin in range(0, len(order), size):
        yield records.batch(order[begin : begin + size])

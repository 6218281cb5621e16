"""Records into batches: one array for each slot."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable, Iterator

from argosy.engine.data.slots.read import Reading
from argosy.engine.data.slots.records import Records
from argosy.engine.data.slots.slot import Array, Slot

Batch = dict[str, Array]


def batches_of_stream(slots: tuple[Slot, ...], parts: Iterable[Records], size: int) -> Iterator[Batch]:
    """Batches of `size` records as the parts come; the last may be smaller."""
    waiting: list[Records] = []
    for part in parts:
        waiting.append(part)
        if sum(map(len, waiting)) >= size:
            records = Records.joined(slots, waiting)
            whole = len(records) - len(records) % size
            for begin in range(0, whole, size):
                yield records.batch(slice(begin, begin + size))
            waiting = [records.chosen(slice(whole, None))] if whole < len(records) else []
    if rest := Records.joined(slots, waiting):
        yield rest.batch(slice(None))


class ReadBatches(Iterator[Batch]):
    """The batches of a reading; `close`, which any thread may call, ends its processes."""

    def __init__(self, slots: tuple[Slot, ...], reading: Reading, size: int) -> None:
        self._reading, self._batches = reading, batches_of_stream(slots, reading, size)

    def __next__(self) -> Batch:
        return next(self._batches)

    def close(self) -> None:
        """End the readers; there are no more batches."""
        self._reading.close()


def batches_in_order(records: Records, order: Array, size: int) -> Iterator[Batch]:
    """Batches of `size` of the records in this order; the last may be smaller."""
    for begin in range(0, len(order), size):
        yield records.batch(order[begin : begin + size])

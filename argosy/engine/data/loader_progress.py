"""Loaders report their progress, so that the views of a job show the epoch and the remaining time.

A loader counts as one of training if training steps were made with its batches: the loader of an evaluation does not
report anything.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator
from typing import Any

from argosy.engine.metrics.metrics_recorder import recorder


class LoaderProgress:
    """Counts the epochs of a loader, and the batches of an epoch if its length is unknown."""

    def __init__(self) -> None:
        self._epoch = 0
        self._length: int | None = None

    def counted(
        self, batches: Iterator[Any], length: Callable[[], int] | None = None
    ) -> "CountedBatches | Iterator[Any]":
        """The batches of an epoch, which are counted if metrics are recorded. `length`: raises TypeError if unknown."""
        if not recorder().is_on:
            return batches
        try:
            known = self._length if length is None else length()
        except TypeError:
            known = self._length
        self._epoch += 1
        return CountedBatches(batches, self._epoch, known, self._end)

    def _end(self, num_batches: int) -> None:
        self._length = num_batches


class CountedBatches(Iterator[Any]):
    """Iterates over batches; reports those with which a training step was made."""

    def __init__(
        self, batches: Iterator[Any], epoch: int, length: int | None, on_end: Callable[[int], None]
    ) -> None:
        self._batches, self._epoch, self._length, self._on_end = batches, epoch, length, on_end
        self._count = 0
        self._step = recorder().step

    def __next__(self) -> Any:
        records = recorder()
        if self._count and records.step > self._step:
            records.progress(self._count, self._length, self._epoch)
        try:
            batch = next(self._batches)
        except StopIteration:
            self._on_end(self._count)
            raise
        self._count += 1
        self._step = records.step
        return batch

    def close(self) -> None:
        """Stop the thread that reads ahead, if there is one."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()

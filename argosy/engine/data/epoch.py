"""Iteration over one epoch whose state can be saved, so that a resumed run gets the same batches.

    restore the random states of the epoch's start ─▶ same order ─▶ skip the batches that were trained
        ─▶ read ahead as far as before ─▶ restore the random states of the checkpoint

An epoch is replayed, not stored: the random states of its start give the same order again. Loaders over a sampler
skip sample numbers, all others read the samples and drop them. Readers in a thread draw their random numbers ahead
of training; a `ReaderState` records how far ahead, and a resumed reader reads just as far before the random states
are restored.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from argosy.engine.data.prefetch import Prefetch
from argosy.engine.data.random_states import RandomStates
from argosy.engine.errors import DataError

_number: ContextVar[int | None] = ContextVar("epoch number", default=None)


@dataclass(frozen=True)
class ReaderState:
    """The state of an iteration over an epoch: the last batch, and random states."""

    batch: int
    """Batches that were returned."""
    ahead: int
    """Batches that the reader's thread had read beyond them."""
    sampler_epoch: int | None
    """The epoch of a sampler that counts epochs itself, at the start of the iteration."""
    began: RandomStates
    """At the start of the epoch."""
    reader: RandomStates
    """Before the first batch that was not returned was read."""
    now: RandomStates
    """When the state was captured."""

    def to_json(self) -> dict[str, Any]:
        """The state as plain lists, numbers and strings."""
        states = {name: getattr(self, name).to_json() for name in ("began", "reader", "now")}
        return {"batch": self.batch, "ahead": self.ahead, "sampler_epoch": self.sampler_epoch, **states}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> ReaderState:
        """The inverse of `to_json`."""
        states = {name: RandomStates.from_json(fields[name]) for name in ("began", "reader", "now")}
        return cls(fields["batch"], fields["ahead"], fields["sampler_epoch"], **states)


@runtime_checkable
class Resumable(Protocol):
    """A loader that can start in the middle of an epoch."""

    def open_at(self, at: ReaderState | None) -> Iterator[Any]:
        """Iterate over an epoch, from its start or after the first `at.batch` batches."""


class EpochIterator(Iterator[Any]):
    """One epoch of a loader, an iterable or a reader function, from its start or from a saved state."""

    def __init__(self, loader: Any, number: int, at: ReaderState | None = None) -> None:
        self._number = number
        self._sampler = _epoch_sampler(loader)
        self._batch = at.batch if at else 0
        if at is not None:
            at.began.restore()
        self._began = RandomStates.capture()
        if at is not None and at.sampler_epoch is not None and self._sampler is not None:
            self._sampler.set_epoch(at.sampler_epoch)
        self._sampler_epoch: int | None = getattr(self._sampler, "epoch", None)
        with epoch_number(number):
            self._items = _open(loader, at)
        if at is not None:
            at.now.restore()
        if isinstance(self._items, Prefetch):
            self._items.resume()

    def __next__(self) -> Any:
        with epoch_number(self._number):
            item = next(self._items)
        self._batch += 1
        return item

    def state(self) -> ReaderState:
        """Capture the state; a reader thread is paused meanwhile."""
        ahead, before, now = 0, None, RandomStates.capture()
        if isinstance(self._items, Prefetch):
            try:
                ahead, before = self._items.pause()
                now = RandomStates.capture()
            finally:
                self._items.resume()
        return ReaderState(self._batch, ahead, self._sampler_epoch, self._began, before or now, now)


@contextmanager
def epoch_number(number: int) -> Iterator[None]:
    """Inside, and in threads started inside, this is the epoch number of `epoch_counter`."""
    token = _number.set(number)
    try:
        yield
    finally:
        _number.reset(token)


def epoch_counter(first: int) -> Callable[[], int]:
    """Return a function that gives the number of each epoch: that of `epoch_number` if set, else it counts calls."""
    calls = itertools.count(first)

    def next_epoch() -> int:
        number = _number.get()
        return next(calls) if number is None else first + number

    return next_epoch


def discard(items: Iterator[Any], count: int) -> None:
    """Drop so many items; if there are fewer, the data has changed since the checkpoint."""
    for dropped in range(count):
        try:
            next(items)
        except StopIteration:
            raise too_short(dropped, count) from None


def too_short(actual: int, expected: int) -> DataError:
    """The error for an epoch that ends before the batch to resume from."""
    return DataError(
        f"the checkpoint was taken after batch {expected} of an epoch, and the epoch now ends after {actual}; resume "
        "with the same data and batch size, or start a new run in another directory"
    )


def _open(loader: Any, at: ReaderState | None) -> Iterator[Any]:
    if not isinstance(loader, Resumable):
        items: Iterator[Any] = iter(loader() if callable(loader) else loader)
        discard(items, at.batch if at else 0)
        return items
    items = loader.open_at(at)
    if at is not None and isinstance(items, Prefetch) and (missing := items.wait_paused()):
        next(items, None)  # re-raises an exception of the reader
        raise too_short(at.batch - missing, at.batch)
    return items


def _epoch_sampler(loader: Any) -> Any:
    """The sampler of the loader that seeds its order with the epoch, or None."""
    sampler = getattr(loader, "batch_sampler", None)
    for candidate in (sampler, getattr(sampler, "sampler", None)):
        if hasattr(candidate, "set_epoch") and isinstance(getattr(candidate, "epoch", None), int):
            return candidate
    return None

"""Passes over the data that know where they are, so that a resumed run goes on with the same batches.

    states when the pass began ─▶ same order ─▶ skip what was trained ─▶ read ahead as far as it was ─▶ states now

A pass is repeated, not stored: the random states of its beginning give the same order again. Loaders over a
sampler skip numbers, all others read and drop. Readers in a thread draw their random numbers ahead of
training; a place tells how far ahead, and a resumed reader is let just as far before the states are set.
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

_number: ContextVar[int | None] = ContextVar("number of the pass", default=None)


@dataclass(frozen=True)
class Place:
    """Where a pass is: after which batch, and in which random states."""

    batch: int
    """Batches that were handed out."""
    ahead: int
    """Batches that the reader's thread had read beyond them."""
    sampler_epoch: int | None
    """The epoch of a sampler that counts them itself, when the pass began."""
    began: RandomStates
    """When the pass began."""
    reader: RandomStates
    """Before the first batch that was not handed out was read."""
    now: RandomStates
    """When the place was taken."""

    def to_json(self) -> dict[str, Any]:
        """The place as plain lists, numbers and texts."""
        states = {name: getattr(self, name).to_json() for name in ("began", "reader", "now")}
        return {"batch": self.batch, "ahead": self.ahead, "sampler_epoch": self.sampler_epoch, **states}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Place:
        """The place that `to_json` gave."""
        states = {name: RandomStates.from_json(found[name]) for name in ("began", "reader", "now")}
        return cls(found["batch"], found["ahead"], found["sampler_epoch"], **states)


@runtime_checkable
class Resumable(Protocol):
    """A loader that can begin a pass in its middle."""

    def open_at(self, at: Place | None) -> Iterator[Any]:
        """A pass, from its beginning or from behind the first `at.batch` batches."""


class Pass(Iterator[Any]):
    """One pass over a loader, an iterable or a reader function, from its beginning or from a place."""

    def __init__(self, loader: Any, number: int, at: Place | None = None) -> None:
        self._number = number
        self._counter = _epoch_counter(loader)
        self._batch = at.batch if at else 0
        if at is not None:
            at.began.restore()
        self._began = RandomStates.capture()
        if at is not None and at.sampler_epoch is not None and self._counter is not None:
            self._counter.set_epoch(at.sampler_epoch)
        self._sampler_epoch: int | None = getattr(self._counter, "epoch", None)
        with numbered(number):
            self._items = _open(loader, at)
        if at is not None:
            at.now.restore()
        if isinstance(self._items, Prefetch):
            self._items.release()

    def __next__(self) -> Any:
        with numbered(self._number):
            item = next(self._items)
        self._batch += 1
        return item

    def place(self) -> Place:
        """Where the pass is; a reader in a thread stands still for that moment."""
        ahead, before, now = 0, None, RandomStates.capture()
        if isinstance(self._items, Prefetch):
            try:
                ahead, before = self._items.hold()
                now = RandomStates.capture()
            finally:
                self._items.release()
        return Place(self._batch, ahead, self._sampler_epoch, self._began, before or now, now)


@contextmanager
def numbered(number: int) -> Iterator[None]:
    """Inside, and in threads begun inside, readers that count their passes take this number."""
    token = _number.set(number)
    try:
        yield
    finally:
        _number.reset(token)


def pass_counter(first: int) -> Callable[[], int]:
    """Gives the number of each pass: those of `numbered` if somebody counts them, else one more each time."""
    own = itertools.count(first)

    def next_pass() -> int:
        number = _number.get()
        return next(own) if number is None else first + number

    return next_pass


def discard(items: Iterator[Any], count: int) -> None:
    """Take so many items; if there are fewer, the data has changed since the checkpoint."""
    for found in range(count):
        try:
            next(items)
        except StopIteration:
            raise shorter(found, count) from None


def shorter(found: int, wanted: int) -> DataError:
    """The error about a pass that ends before the place where it shall go on."""
    return DataError(
        f"the checkpoint was taken after batch {wanted} of a pass, and the pass now ends after {found}; resume "
        "with the same data and batch size, or begin anew in another directory"
    )


def _open(loader: Any, at: Place | None) -> Iterator[Any]:
    if not isinstance(loader, Resumable):
        items: Iterator[Any] = iter(loader() if callable(loader) else loader)
        discard(items, at.batch if at else 0)
        return items
    items = loader.open_at(at)
    if at is not None and isinstance(items, Prefetch) and (missing := items.wait_held()):
        next(items, None)  # raises what the reader raised, if it did
        raise shorter(at.batch - missing, at.batch)
    return items


def _epoch_counter(loader: Any) -> Any:
    """The sampler of the loader that seeds its order with the number of the epoch, if it does."""
    sampler = getattr(loader, "batch_sampler", None)
    for one in (sampler, getattr(sampler, "sampler", None)):
        if hasattr(one, "set_epoch") and isinstance(getattr(one, "epoch", None), int):
            return one
    return None

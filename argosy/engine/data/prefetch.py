"""Read ahead in threads: an iterator whose items are made before they are asked for.

    source ──▶ pull ──▶ work (any thread) ──▶ window of `capacity` items ──▶ next()
               one thread at a time                └ at most so many are in work or waiting

Every decorator and loader that reads in the background is this one class, so the promises hold for
all of them: an exception of the source or the work reaches the consumer with its traceback, and the
threads end when the iterator is closed, dropped in the middle, or still alive at interpreter exit.

A reader that draws random numbers draws them ahead, too. A checkpoint therefore holds the reader still while
it looks (`hold`), and a resumed one reads just as far before training goes on (`wait_held`, `release`).
"""

# SPDX-License-Identifier: Apache-2.0
import contextvars
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from argosy.engine.data.random_states import RandomStates
from argosy.engine.errors import ConfigError, DataError
from argosy.engine.log import logger

T = TypeVar("T")

_JOIN_S = 10.0


class Prefetch(Iterator[T]):
    """Iterate over `work(item) for item in source()`, made ahead by `threads` threads.

    `ordered=False` hands out whatever is ready first. `close()` ends the threads early.
    To resume (one thread, no work): the first `skip` items are read and dropped, and no item from number
    `hold_at` on is read before `release()`. `notes_states`: remember the random states before each item.
    """

    def __init__(
        self,
        source: Callable[[], Iterable[Any]],
        capacity: int,
        *,
        work: Callable[[Any], T] | None = None,
        threads: int = 1,
        ordered: bool = True,
        skip: int = 0,
        hold_at: int | None = None,
        notes_states: bool = False,
    ) -> None:
        for name, number in (("capacity", capacity), ("threads", threads)):
            if number < 1:
                raise ConfigError(f"{name} is {number}, which holds nothing; use 1 or more")
        # The threads know the window and not this object: otherwise it could never become garbage.
        self._window: _Window[T] = _Window(source, work, capacity, ordered, skip, hold_at)
        self._window.states = {} if notes_states else None
        team = [
            # In the context of who iterates: a reader may ask for the number of the pass (passes.py).
            threading.Thread(
                target=contextvars.copy_context().run,
                args=(self._window.run,),
                name="argosy-reader",
                daemon=True,
            )
            for _ in range(threads)
        ]
        # A finalizer runs when this object dies and at interpreter exit; the threads are daemons only
        # because Python would otherwise wait for them before it runs finalizers.
        self._stop = weakref.finalize(self, _stop, self._window, team)
        for thread in team:
            thread.start()

    def __next__(self) -> T:
        taken = self._window.take()
        if taken is None:
            self.close()
            raise StopIteration
        item, error = taken
        if error is None:
            return item  # type: ignore[return-value]  # an outcome without an error has an item
        self.close()
        if isinstance(error, StopIteration):  # from a mapper it would look like a normal end
            raise DataError("a mapper raised StopIteration; let the reader end, or raise another") from error
        try:
            raise error
        finally:
            del error, taken  # the traceback holds this frame: without the cycle, it dies at once

    def hold(self) -> tuple[int, RandomStates | None]:
        """Let the reader stand still: how many items are read and not taken; the states before the first.

        (None: nothing is read ahead, or states are not noted.) `release` lets it go on.
        """
        return self._window.hold()

    def wait_held(self) -> int:
        """Wait until the reader has come to `hold_at`, or to its end; how many items it failed to skip."""
        return self._window.wait_held()

    def release(self) -> None:
        """Let the reader go on after `hold` or `hold_at`."""
        self._window.release()

    def close(self) -> None:
        """End the threads; what was read ahead is dropped, and the iterator is at its end."""
        self._stop()


class _Window(Generic[T]):
    """What the threads and the consumer share: the items `taken .. taken + capacity`."""

    def __init__(
        self,
        source: Callable[[], Iterable[Any]],
        work: Callable[[Any], T] | None,
        capacity: int,
        ordered: bool,
        skip: int,
        hold_at: int | None,
    ) -> None:
        self._source = source
        self._work = work
        self._capacity = capacity
        self._ordered = ordered
        self._skip = skip
        self._hold_at = hold_at
        self._reading = 0
        """Items that were begun and are neither ready nor dropped."""
        self.states: dict[int, RandomStates] | None = None
        self._items: Iterator[Any] | None = None
        self._pulling = threading.Lock()
        self._changed = threading.Condition()
        self._ready: dict[int, tuple[T | None, BaseException | None]] = {}
        self._pulled = 0
        self._taken = 0
        self._end: int | None = None
        self._closed = False

    def run(self) -> None:
        """The life of one thread."""
        while (pulled := self._pull()) is not None:
            index, item = pulled
            try:
                self._put(index, item if self._work is None else self._work(item), None)
            except BaseException as e:
                self._put(index, None, e)
            del item, pulled  # while this thread waits, it keeps no sample alive
        self._close_source()

    def take(self) -> tuple[T | None, BaseException | None] | None:
        """The next outcome, or None at the end."""
        with self._changed:
            while True:
                if self._closed or self._taken == self._end:
                    return None
                index = self._taken if self._ordered else next(iter(self._ready), -1)
                if index in self._ready:
                    self._advance()
                    return self._ready.pop(index)
                self._changed.wait()

    def _advance(self) -> None:
        if self.states is not None:
            self.states.pop(self._taken, None)
        self._taken += 1
        self._changed.notify_all()

    def hold(self) -> tuple[int, RandomStates | None]:
        with self._changed:
            self._hold_at = self._pulled
            self._changed.wait_for(self._is_held)
            return self._pulled - self._taken, (self.states or {}).get(self._taken)

    def wait_held(self) -> int:
        with self._changed:
            self._changed.wait_for(self._is_held)
            return max(self._skip - self._taken, 0)

    def _is_held(self) -> bool:
        is_there = self._hold_at is None or self._pulled >= self._hold_at
        return self._closed or self._end is not None or (is_there and not self._reading)

    def release(self) -> None:
        with self._changed:
            self._hold_at = None
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()

    def _pull(self) -> tuple[int, Any] | None:
        with self._pulling:
            with self._changed:
                while not self._closed and self._pulled >= self._limit():
                    self._changed.wait()
                if self._closed or self._end is not None:
                    return None
                index = self._pulled
                self._pulled += 1
                self._reading += 1
            try:
                if self.states is not None:
                    self.states[index] = RandomStates.capture()
                if self._items is None:
                    self._items = iter(self._source())
                return index, next(self._items)
            except StopIteration:
                self._finish(index)
            except BaseException as e:
                self._put(index, None, e)
                self._finish(index + 1)
            return None

    def _limit(self) -> int:
        return self._taken + self._capacity if self._hold_at is None else self._hold_at

    def _put(self, index: int, item: T | None, error: BaseException | None) -> None:
        with self._changed:
            self._reading -= 1
            self._changed.notify_all()
            if self._closed:
                return
            if index < self._skip and error is None:
                self._advance()
                return
            self._ready[index] = (item, error)

    def _finish(self, end: int) -> None:
        with self._changed:
            self._end = end
            self._changed.notify_all()

    def _close_source(self) -> None:
        """Let the reader's own `finally` blocks run now, in a reader thread, not at some later time."""
        with self._pulling:
            items, self._items = self._items, iter(())
            try:
                if items is not None and hasattr(items, "close"):
                    items.close()
            except Exception:
                logger.warning("a reader failed while it was closed", exc_info=True)


def _stop(window: _Window[Any], team: list[threading.Thread]) -> None:
    window.close()
    for thread in team:
        # A garbage collection may run this in any thread, even in one of the team.
        if thread.ident is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S)
            if thread.is_alive():
                logger.warning(
                    "a reader did not give its next sample within %d s after it was closed; its thread is"
                    " left behind (a reader should not wait forever)",
                    _JOIN_S,
                )

"""Read ahead in threads: an iterator whose items are computed before they are requested.

    source ──▶ pull ──▶ work (any thread) ──▶ window of `capacity` items ──▶ next()
               one thread at a time                └ at most so many in progress or ready

Every decorator and loader that reads in the background uses this class, so its guarantees hold for
all of them: an exception of the source or the work reaches the consumer with its traceback, and the
threads exit when the iterator is closed, dropped in the middle, or still alive at interpreter exit.

A reader that draws random numbers draws them ahead, too. A checkpoint therefore pauses the reader while it captures
the random states (`pause`), and a resumed one reads just as far before training continues (`wait_paused`, `resume`).
"""

# SPDX-License-Identifier: Apache-2.0
import contextvars
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from argosy.engine.data.input_wait import counted_wait
from argosy.engine.data.random_states import RandomStates
from argosy.engine.errors import ConfigError, DataError
from argosy.engine.log import logger

T = TypeVar("T")

_JOIN_S = 10.0


class Prefetch(Iterator[T]):
    """Iterate over `work(item) for item in source()`, computed ahead by `threads` threads.

    `ordered=False` returns items as they get ready. `close()` stops the threads early.
    To resume from a checkpoint (one thread, no work): the first `skip` items are read and dropped, and no item from
    number `pause_at` on is read before `resume()`. `records_states`: record the random states before each item.
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
        pause_at: int | None = None,
        records_states: bool = False,
    ) -> None:
        for name, number in (("capacity", capacity), ("threads", threads)):
            if number < 1:
                raise ConfigError(f"{name} is {number}; use 1 or more")
        # The threads reference the window, not this object: otherwise it could never be garbage-collected.
        self._window: _Window[T] = _Window(source, work, capacity, ordered, skip, pause_at)
        self._window.states = {} if records_states else None
        workers = [
            # With the context of the caller: a reader may need the epoch number (epoch.py).
            threading.Thread(
                target=contextvars.copy_context().run,
                args=(self._window.run,),
                name="argosy-reader",
                daemon=True,
            )
            for _ in range(threads)
        ]
        # A finalizer runs when this object is collected and at interpreter exit; the threads are daemons only
        # because Python would otherwise wait for them before it runs finalizers.
        self._stop = weakref.finalize(self, _stop, self._window, workers)
        for thread in workers:
            thread.start()

    def __next__(self) -> T:
        with counted_wait():
            taken = self._window.take()
        if taken is None:
            self.close()
            raise StopIteration
        item, error = taken
        if error is None:
            return item  # type: ignore[return-value]  # without an error there is an item
        self.close()
        if isinstance(error, StopIteration):  # from a mapper it would look like the end of the data
            raise DataError("a mapper raised StopIteration; let the reader end, or raise another") from error
        try:
            raise error
        finally:
            del error, taken  # break the reference cycle: the traceback refers to this frame

    def pause(self) -> tuple[int, RandomStates | None]:
        """Pause the reader; returns how many items are read ahead, and the random states before the first of them.

        (None: nothing is read ahead, or states are not recorded.) `resume` continues reading.
        """
        return self._window.pause()

    def wait_paused(self) -> int:
        """Wait until the reader has reached `pause_at`, or its end; returns how many items it could not skip."""
        return self._window.wait_paused()

    def resume(self) -> None:
        """Continue reading after `pause` or `pause_at`."""
        self._window.resume()

    def close(self) -> None:
        """Stop the threads; items that were read ahead are dropped, and the iterator is exhausted."""
        self._stop()


class _Window(Generic[T]):
    """The state shared by the threads and the consumer: the items `taken .. taken + capacity`."""

    def __init__(
        self,
        source: Callable[[], Iterable[Any]],
        work: Callable[[Any], T] | None,
        capacity: int,
        ordered: bool,
        skip: int,
        pause_at: int | None,
    ) -> None:
        self._source = source
        self._work = work
        self._capacity = capacity
        self._ordered = ordered
        self._skip = skip
        self._pause_at = pause_at
        self._reading = 0
        """Items in progress: neither ready nor dropped."""
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
        """The main function of each thread."""
        while (pulled := self._pull()) is not None:
            index, item = pulled
            try:
                self._put(index, item if self._work is None else self._work(item), None)
            except BaseException as e:
                self._put(index, None, e)
            del item, pulled  # a waiting thread must not keep a sample alive
        self._close_source()

    def take(self) -> tuple[T | None, BaseException | None] | None:
        """The next item or error, or None at the end."""
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

    def pause(self) -> tuple[int, RandomStates | None]:
        with self._changed:
            self._pause_at = self._pulled
            self._changed.wait_for(self._is_paused)
            return self._pulled - self._taken, (self.states or {}).get(self._taken)

    def wait_paused(self) -> int:
        with self._changed:
            self._changed.wait_for(self._is_paused)
            return max(self._skip - self._taken, 0)

    def _is_paused(self) -> bool:
        has_reached = self._pause_at is None or self._pulled >= self._pause_at
        return self._closed or self._end is not None or (has_reached and not self._reading)

    def resume(self) -> None:
        with self._changed:
            self._pause_at = None
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
        return self._taken + self._capacity if self._pause_at is None else self._pause_at

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
        """Close the source now, in a reader thread, so that its `finally` blocks do not run at some later time."""
        with self._pulling:
            items, self._items = self._items, iter(())
            try:
                if items is not None and hasattr(items, "close"):
                    items.close()
            except Exception:
                logger.warning("a reader failed in close()", exc_info=True)


def _stop(window: _Window[Any], threads: list[threading.Thread]) -> None:
    window.close()
    for thread in threads:
        # Garbage collection may run this in any thread, even in one of these.
        if thread.ident is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S)
            if thread.is_alive():
                logger.warning(
                    "a reader did not return its next sample within %d s after it was closed; its thread"
                    " is left running (a reader should not block forever)",
                    _JOIN_S,
                )

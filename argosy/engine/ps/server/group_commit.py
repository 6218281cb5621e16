"""Group commit: records of many threads are written to the log together.

thread 1   add ──▶ ┐
thread 2   add ──▶ ├ queue ──▶ the first thread that calls `flush` writes all queued records, and those that
thread 3   add ──▶ ┘           are added meanwhile; then calls each one's `done`, which sends the reply
"""

# SPDX-License-Identifier: Apache-2.0
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from argosy.engine.disk import Buffer
from argosy.engine.log import logger

Done = Callable[[Exception | None], None]
"""Called when a record is written, or with the error if it could not be."""
_RETRY_S = 0.5
_MOST_BYTES = 16 << 20
"""The largest batch, so that the first record in the queue does not wait for all."""


@dataclass(frozen=True)
class _Item:
    parts: Sequence[Buffer]
    size: int
    done: Done
    write: Callable[[Sequence[Buffer]], None] | None = None
    """Called instead of writing the parts."""


class GroupCommit:
    """A queue in front of a log."""

    def __init__(
        self,
        write: Callable[[Sequence[Buffer]], None],
        failed: Callable[[Exception], None] | None = None,
        retry_for_s: float = 30.0,
    ) -> None:
        """`write` writes all or raises OSError; retried for `retry_for_s`: space may become free on a full disk.

        `failed` is called once if a record could not be written: nothing is written after it, so that no record is
        missing between others.
        """
        self._write, self._failed, self._retry_for_s = write, failed, retry_for_s
        self._error: Exception | None = None
        self._queue: list[_Item] = []
        self._is_writing = False
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def add(self, parts: Sequence[Buffer], done: Done) -> None:
        """Append a record to the queue; `flush` writes it."""
        with self._lock:
            self._queue.append(_Item(parts, sum(map(len, parts)), done))

    def between(self, function: Callable[[], None], done: Done) -> None:
        """Call `function` after all records that are queued now, and before any later one."""
        with self._lock:
            self._queue.append(_Item((), 0, done, lambda _: function()))

    def after(self, done: Done) -> None:
        """Call `done` when all records that are queued now are written: at once if there are none."""
        with self._lock:
            is_idle = not (self._queue or self._is_writing)
            if not is_idle:
                self._queue.append(_Item((), 0, done))
        if is_idle:
            done(self._error)
        else:
            self.flush()

    def flush(self) -> None:
        """Write the queued records, unless another thread does."""
        while batch := self._next_batch():
            error = self._try(batch[0].write or self._write, [part for item in batch for part in item.parts])
            if error is not None and batch[0].write is None and self._error is None:
                self._error = error
                if self._failed is not None:
                    self._failed(error)
            with self._lock:
                self._is_writing = False  # what `done` calls may flush
            for item in batch:
                self._call(item.done, error)

    def stop(self) -> None:
        """Do not retry failed writes any more."""
        self._stopped.set()

    def _next_batch(self) -> list[_Item]:
        with self._lock:
            if self._is_writing:
                return []
            size = count = 0
            for item in self._queue:
                if item.write is not None or size > _MOST_BYTES:
                    break
                size, count = size + item.size, count + 1
            count = count or len(self._queue[:1])
            batch, self._queue = self._queue[:count], self._queue[count:]
            self._is_writing = bool(batch)
            return batch

    @staticmethod
    def _call(done: Done, error: Exception | None) -> None:
        try:
            done(error)
        except Exception:  # of one request; the others still need their replies
            logger.exception("the callback after a write to the log failed")

    def _try(self, write: Callable[[Sequence[Buffer]], None], parts: Sequence[Buffer]) -> Exception | None:
        until, is_first = time.monotonic() + self._retry_for_s, True
        while True:
            if self._error is not None:
                return self._error
            try:
                write(parts)
            except OSError as e:
                if time.monotonic() > until or self._stopped.wait(_RETRY_S):
                    return e
                if is_first:
                    logger.error("the log cannot be written: %s; retrying for %g s", e, self._retry_for_s)
                    is_first = False
            except Exception as e:
                return e
            else:
                return None

"""Signals to the launcher become events of its queue, and so does the end of its standard input."""

# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import queue
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from argosy.engine import process_effects
from argosy.engine.launch.processes import Events, SignalEvent


@contextlib.contextmanager
def signals_as_events(end_with_stdin: bool = False) -> Iterator[Events]:
    """Turn signals to the launcher into events; one that is ignored (nohup) stays ignored.

    Except SIGTERM, which the kernel sends when the guard is killed; the guard forwards no ignored signal. With
    `end_with_stdin`, the end of standard input counts as SIGHUP.
    """
    events: Events = queue.SimpleQueue()

    def enqueue(number: int, frame: FrameType | None) -> None:
        events.put(SignalEvent(number))

    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    handled = {s: old for s, old in before.items() if old != signal.SIG_IGN or s == signal.SIGTERM}
    with process_effects.during("launcher-signals"):
        for number in handled:
            signal.signal(number, enqueue)
        if end_with_stdin:
            threading.Thread(target=_read_stdin, args=(events,), name="stdin", daemon=True).start()
        try:
            yield events
        finally:
            for number, old in handled.items():
                signal.signal(number, old)


def _read_stdin(events: Events) -> None:
    """Read standard input to its end, then put SIGHUP into the queue."""
    with contextlib.suppress(OSError):
        while os.read(0, 1 << 16):
            pass
    events.put(SignalEvent(signal.SIGHUP))

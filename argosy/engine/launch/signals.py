"""Signals to the launcher become events of its queue, and so do a line and the end of its standard input."""

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

PREEMPT = b"argosy-preempt"
"""A line of standard input that counts as SIGTERM (--end_with_stdin): ssh forwards no signals."""


@contextlib.contextmanager
def signals_as_events(end_with_stdin: bool = False) -> Iterator[Events]:
    """Turn signals to the launcher into events; one that is ignored (nohup) stays ignored.

    Except SIGTERM, which the kernel sends when the guard is killed; the guard forwards no ignored signal. With
    `end_with_stdin`, the end of standard input counts as SIGHUP, and the line PREEMPT as SIGTERM.
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
    """Read standard input to its end, then put SIGHUP into the queue; SIGTERM for a line PREEMPT."""
    unread = b""
    with contextlib.suppress(OSError):
        while received := os.read(0, 1 << 16):
            *lines, unread = (unread + received).split(b"\n")
            unread = unread[: len(PREEMPT) + 1]  # of a longer line, which is none of ours
            if PREEMPT in lines:
                events.put(SignalEvent(signal.SIGTERM))
    events.put(SignalEvent(signal.SIGHUP))

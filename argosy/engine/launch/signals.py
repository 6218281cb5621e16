"""Signals to the launcher become events of its queue."""

# SPDX-License-Identifier: Apache-2.0
import queue
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from argosy.engine import process_effects
from argosy.engine.launch.processes import Events, SignalEvent


@contextmanager
def signals_as_events() -> Iterator[Events]:
    """Turn signals to the launcher into events; one that is ignored (nohup) stays ignored.

    Except SIGTERM, which the kernel sends when the guard is killed; the guard forwards no ignored signal.
    """
    events: Events = queue.SimpleQueue()

    def enqueue(number: int, frame: FrameType | None) -> None:
        events.put(SignalEvent(number))

    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    handled = {s: old for s, old in before.items() if old != signal.SIG_IGN or s == signal.SIGTERM}
    with process_effects.during("launcher-signals"):
        for number in handled:
            signal.signal(number, enqueue)
        try:
            yield events
        finally:
            for number, old in handled.items():
                signal.signal(number, old)

"""Count the time in which the training thread waits for its next batch (`counters.input_ns`)."""

# SPDX-License-Identifier: Apache-2.0
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from argosy.engine.metrics import counters

T = TypeVar("T")


@contextmanager
def counted_wait() -> Iterator[None]:
    """Count the time inside, in the main thread: others are readers that read ahead."""
    if threading.get_ident() != threading.main_thread().ident:
        yield
        return
    began = time.perf_counter_ns()
    try:
        yield
    finally:
        counters.input_ns += time.perf_counter_ns() - began


def counted(source: Iterable[T]) -> Iterator[T]:
    """The same items; the time that each takes is counted."""
    iterator = iter(source)
    while True:
        with counted_wait():
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item

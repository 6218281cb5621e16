"""Requests that are answered later: when a step is done, or when there are first values."""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import Callable

from argosy.engine.ps.rpc.listener import Request

Handle = Callable[[Request], None]


class Held:
    """Each with the step that it waits for, and what is to be done with it then."""

    def __init__(self, lock: threading.RLock, is_ready: Callable[[int], bool]) -> None:
        """`is_ready(after)`: whether there are values, and that step is done."""
        self._lock, self._is_ready = lock, is_ready
        self._held: list[tuple[int, Request, Handle]] = []

    def when(self, after: int, request: Request, handle: Handle) -> None:
        """Do it now if the step is done, else when it is."""
        with self._lock:
            if not self._is_ready(after):
                self._held.append((after, request, handle))
                return
        handle(request)

    def release(self) -> None:
        """Do what can be done now; to be called without the lock."""
        with self._lock:
            held, self._held = self._held, []
        for after, request, handle in held:
            try:
                self.when(after, request, handle)
            except Exception as e:  # one that is wrong must not take the others with it
                if not request.is_answered:
                    request.refuse(f"{type(e).__name__}: {e}")

    def requests(self) -> list[Request]:
        return [request for _, request, _ in self._held]

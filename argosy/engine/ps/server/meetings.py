"""Meetings: each member brings tensors, and gets those of all when the last has come."""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from torch import Tensor

Found = Callable[[list[list[Tensor]]], None]
Key = tuple[str, int]
"""Name and number."""
_KEPT = 16


@dataclass
class _Meeting:
    brought: dict[int, list[Tensor]] = field(default_factory=dict)
    waiting: list[tuple[int, Found]] = field(default_factory=list)


class Meetings:
    """Meetings by name and number."""

    def __init__(self, expected: Callable[[Key], Iterable[int]]) -> None:
        """`expected(key)`: the members that a meeting waits for now."""
        self._expected = expected
        self._open: dict[Key, _Meeting] = {}
        self._done: dict[Key, list[list[Tensor]]] = {}
        self._lock = threading.Lock()

    def join(self, key: Key, member: int, tensors: list[Tensor], found: Found) -> None:
        """`found` is called with the tensors of all, when all have come; at once, if that has been."""
        with self._lock:
            if key not in self._done:
                meeting = self._open.setdefault(key, _Meeting())
                meeting.brought[member] = tensors
                meeting.waiting.append((member, found))
        if key in self._done:
            found(self._done[key])
        self.check()

    def missing(self, key: Key) -> list[int]:
        """Who has not come yet."""
        meeting = self._open.get(key, _Meeting())
        return sorted(set(self._expected(key)) - meeting.brought.keys())

    def check(self) -> None:
        """End the meetings that wait for nobody any more: all have come, or the missing are dropped."""
        ended = []
        with self._lock:
            for key, meeting in list(self._open.items()):
                if not set(self._expected(key)) - meeting.brought.keys():
                    result = [tensors for _, tensors in sorted(meeting.brought.items())]
                    self._done[key] = result
                    del self._open[key]
                    ended.append((meeting, result))
            while len(self._done) > _KEPT:  # kept for a server that is started anew and asks again
                del self._done[next(iter(self._done))]
        for meeting, result in ended:
            for _, found in meeting.waiting:
                found(result)

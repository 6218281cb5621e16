"""Meetings: each member brings tensors, and gets those of all when the last has come."""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ps.rpc.listener import Request

Result = list[list[Tensor]]
"""What each member has brought, in the order of their numbers."""
Found = Callable[[Result], None]
Key = tuple[str, int]
"""Name and number."""
_KEPT = 1000
_KEPT_BYTES = 64 << 20
"""Results are kept up to so many, for a trainer that is started anew: its script comes to every meeting again."""


@dataclass
class _Meeting:
    brought: dict[int, list[Tensor]] = field(default_factory=dict)
    waiting: list[tuple[Found, Request | None]] = field(default_factory=list)


class Meetings:
    """Meetings by name and number."""

    def __init__(
        self, expected: Callable[[Key], Iterable[int]], over: Callable[[Key, Result], None] | None = None
    ) -> None:
        """`expected(key)`: the members that a meeting waits for now; `over` gets a result before anybody else does."""
        self._expected, self._over = expected, over
        self._open: dict[Key, _Meeting] = {}
        self._done: dict[Key, Result] = {}
        self._kept_bytes = 0
        self._last: dict[str, int] = {}
        """By name, the number of the last meeting that is over."""
        self._lock = threading.Lock()

    def join(
        self, key: Key, member: int, tensors: list[Tensor], found: Found, request: Request | None = None
    ) -> None:
        """`found` is called with the tensors of all, when all have come; at once, if that has been.

        `request`: who is to be told whom the meeting waits for.
        """
        with self._lock:
            over = self._done.get(key)
            if over is None:
                self._check_number(key)
                meeting = self._open.setdefault(key, _Meeting())
                meeting.brought[member] = tensors
                meeting.waiting.append((found, request))
        if over is not None:
            found(over)
        self.check()

    def _check_number(self, key: Key) -> None:
        name, number = key
        if number <= self._last.get(name, -1):
            raise ConfigError(
                f"{name}: this meeting, number {number}, is over, so long ago that its result is forgotten; "
                "end the job, and start it anew from what it has saved"
            )

    def check(self) -> None:
        """End the meetings that wait for nobody any more: all have come, or the missing are dropped."""
        with self._lock:
            full = [
                key for key, one in self._open.items() if not set(self._expected(key)) - one.brought.keys()
            ]
            results = {key: [t for _, t in sorted(self._open[key].brought.items())] for key in full}
        for key, result in results.items():
            self.end(key, result)

    def end(self, key: Key, result: Result) -> None:
        """A meeting is over, with this result."""
        if self._over is not None:
            self._over(key, result)
        with self._lock:
            meeting = self._open.pop(key, _Meeting())  # another thread may have been first
            self.remember(key, result)
        for found, _ in meeting.waiting:
            found(result)

    def remember(self, key: Key, result: Result) -> None:
        """Keep the result of a meeting that is over."""
        if key in self._done:
            return
        self._done[key] = result
        self._last[key[0]] = max(key[1], self._last.get(key[0], -1))
        self._kept_bytes += _bytes(result)
        while len(self._done) > _KEPT or (self._kept_bytes > _KEPT_BYTES and len(self._done) > 1):
            self._kept_bytes -= _bytes(self._done.pop(next(iter(self._done))))

    def missing(self, key: Key) -> list[int]:
        """Who has not come yet."""
        meeting = self._open.get(key, _Meeting())
        return sorted(set(self._expected(key)) - meeting.brought.keys())

    def waiting(self) -> list[tuple[Key, Request]]:
        """The requests of all who wait."""
        with self._lock:
            return [
                (key, request)
                for key, meeting in self._open.items()
                for _, request in meeting.waiting
                if request is not None and not request.is_answered
            ]


def _bytes(result: Result) -> int:
    return sum(tensor.nbytes for tensors in result for tensor in tensors)

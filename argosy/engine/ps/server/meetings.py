"""Meetings: each member brings tensors, and gets those of all when the last has come."""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from torch import Tensor

from argosy.engine.errors import ConfigError

Found = Callable[[list[list[Tensor]]], None]
Key = tuple[str, int]
"""Name and number."""
_KEPT = 1000
_KEPT_BYTES = 64 << 20
"""Results are kept up to so many, for a trainer that is started anew: its script comes to every meeting again."""


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
        self._kept_bytes = 0
        self._last: dict[str, int] = {}
        """By name, the number of the last meeting that is over."""
        self._lock = threading.Lock()

    def join(self, key: Key, member: int, tensors: list[Tensor], found: Found) -> None:
        """`found` is called with the tensors of all, when all have come; at once, if that has been."""
        with self._lock:
            if key not in self._done:
                if key[1] <= self._last.get(key[0], -1):
                    raise ConfigError(
                        f"{key[0]}: this meeting, number {key[1]}, is over, so long ago that its result is forgotten; end "
                        "the job, and start it anew from what it has saved"
                    )
                meeting = self._open.setdefault(key, _Meeting())
                meeting.brought[member] = tensors
                meeting.waiting.append((member, found))
            over = self._done.get(key)
        if over is not None:
            found(over)
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
                    del self._open[key]
                    self._keep(key, result)
                    ended.append((meeting, result))
        for meeting, result in ended:
            for _, found in meeting.waiting:
                found(result)

    def _keep(self, key: Key, result: list[list[Tensor]]) -> None:
        self._done[key] = result
        self._last[key[0]] = max(key[1], self._last.get(key[0], -1))
        self._kept_bytes += _bytes(result)
        while len(self._done) > _KEPT or (self._kept_bytes > _KEPT_BYTES and len(self._done) > 1):
            self._kept_bytes -= _bytes(self._done.pop(next(iter(self._done))))


def _bytes(result: list[list[Tensor]]) -> int:
    return sum(tensor.nbytes for tensors in result for tensor in tensors)

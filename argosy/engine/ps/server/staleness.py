"""Staleness of pushes: how many updates a server has applied since the trainer pulled what its push is based on.

    trainer 0   pull (version 7)                    push: 9 - 7 = 2 updates behind
    trainer 1                     push   push
    version     7                 8      9          10

Versions are counted for each block and table. A prefetched batch is pulled before the previous one is pushed, so a push
belongs to the oldest pull that no push has used.
"""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

_PULLS = 2
"""Pulls before a push: of this batch, and of the prefetched one."""


class Staleness:
    """The staleness of the pushes since the last call of `take`; used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._versions: Counter[str] = Counter()
        self._pulled: dict[tuple[int, str], deque[int]] = {}
        self._count = self._sum = self._max = 0

    def note_pull(self, trainer: int, names: Iterable[str]) -> None:
        """A trainer reads these blocks or tables."""
        with self._lock:
            for name in names:
                pulled = self._pulled.setdefault((trainer, name), deque(maxlen=_PULLS))
                if pulled and pulled[0] < 0:  # a push has used it
                    pulled.clear()
                pulled.append(self._versions[name])

    def note_push(self, trainer: int, names: Iterable[str]) -> None:
        """A trainer updates these blocks or tables; staleness is measured on the first one."""
        with self._lock:
            for i, name in enumerate(names):
                if i == 0:
                    self._measure(trainer, name)
                self._versions[name] += 1

    def _measure(self, trainer: int, name: str) -> None:
        pulled = self._pulled.get((trainer, name))
        if not pulled:  # it has its initial values
            return
        version = pulled.popleft()
        if version < 0:
            version = -version - 1
        if not pulled:  # further pushes may be based on it
            pulled.append(-version - 1)
        behind = self._versions[name] - version
        self._count += 1
        self._sum += behind
        self._max = max(self._max, behind)

    def take(self) -> dict[str, Any] | None:
        """The fields of a record, None without a push; begins to count again."""
        with self._lock:
            fields = {"mean": round(self._sum / self._count, 3), "max": self._max} if self._count else None
            self._count = self._sum = self._max = 0
            return fields

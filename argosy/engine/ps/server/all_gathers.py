"""All-gathers on a server: each member contributes tensors, and gets those of all when the last one has joined.

A barrier is an all-gather without tensors.
"""

# SPDX-License-Identifier: Apache-2.0
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ps.rpc.server import Request

Gathered = list[list[Tensor]]
"""The tensors of each member, in the order of the members' numbers."""
OnGathered = Callable[[Gathered], None]
CollectiveKey = tuple[str, int]
"""Name and sequence number of a collective."""
_MAX_RESULTS = 1000
_MAX_RESULT_BYTES = 64 << 20


class GatherResults:
    """The results of the last barriers: a restarted trainer runs its script again, and repeats every barrier."""

    def __init__(self) -> None:
        self._by_key: dict[CollectiveKey, Gathered] = {}
        self._bytes = 0
        self._last: dict[str, int] = {}
        """By name, the highest sequence number."""

    def get(self, key: CollectiveKey) -> Gathered | None:
        return self._by_key.get(key)

    def add(self, key: CollectiveKey, result: Gathered) -> None:
        """Store a result; beyond a count and a size the oldest ones are removed."""
        if key in self._by_key:
            return
        self._by_key[key] = result
        self._last[key[0]] = max(key[1], self._last.get(key[0], -1))
        self._bytes += _bytes(result)
        while len(self._by_key) > _MAX_RESULTS or (self._bytes > _MAX_RESULT_BYTES and len(self._by_key) > 1):
            self.remove(next(iter(self._by_key)))

    def remove(self, key: CollectiveKey) -> None:
        self._bytes -= _bytes(self._by_key.pop(key))

    def is_dropped(self, key: CollectiveKey) -> bool:
        """True if there was a result that has been removed."""
        return key not in self._by_key and key[1] <= self._last.get(key[0], -1)

    def items(self) -> list[tuple[CollectiveKey, Gathered]]:
        return list(self._by_key.items())


@dataclass
class _AllGather:
    contributed: dict[int, list[Tensor]] = field(default_factory=dict)
    waiting: list[tuple[OnGathered, Request | None]] = field(default_factory=list)
    is_completing: bool = False
    """A thread completes it; members that join now get the same result."""


class AllGathers:
    """Pending and completed all-gathers."""

    def __init__(
        self,
        expected: Callable[[CollectiveKey], Iterable[int]],
        on_complete: Callable[[CollectiveKey, Gathered], None] | None = None,
    ) -> None:
        """`expected(key)`: the members to wait for. `on_complete` gets a result before any member does."""
        self._expected, self._on_complete = expected, on_complete
        self._open: dict[CollectiveKey, _AllGather] = {}
        self._done = GatherResults()
        self._lock = threading.Lock()

    def join(
        self,
        key: CollectiveKey,
        member: int,
        tensors: list[Tensor],
        on_gathered: OnGathered,
        request: Request | None = None,
    ) -> None:
        """Join, and call `on_gathered` with the tensors of all members when all have joined; at once if that is done.

        `request` gets progress messages while it waits.
        """
        with self._lock:
            result = self._done.get(key)
            if result is None:
                self._check_dropped(key)
                gather = self._open.setdefault(key, _AllGather())
                gather.contributed[member] = tensors
                gather.waiting.append((on_gathered, request))
        if result is not None:
            on_gathered(result)
        self.check()

    def _check_dropped(self, key: CollectiveKey) -> None:
        if self._done.is_dropped(key):
            raise ConfigError(
                f"barrier {key[0]!r}, number {key[1]}, completed so long ago that its result is no longer kept; end "
                "the job, and start it again from what it has saved"
            )

    def result(self, key: CollectiveKey) -> Gathered | None:
        """The result of a completed all-gather; None if it is pending or unknown."""
        with self._lock:
            self._check_dropped(key)
            return self._done.get(key)

    def check(self) -> None:
        """Complete the all-gathers that all expected members have joined."""
        with self._lock:
            full = [
                key
                for key, gather in self._open.items()
                if not gather.is_completing and not set(self._expected(key)) - gather.contributed.keys()
            ]
            results = {key: [t for _, t in sorted(self._open[key].contributed.items())] for key in full}
        for key, result in results.items():
            self.complete(key, result)

    def complete(self, key: CollectiveKey, result: Gathered) -> None:
        """Complete an all-gather with this result; no effect if another thread does or has done so."""
        with self._lock:
            gather = self._open.get(key)
            if gather is None or gather.is_completing:
                return
            gather.is_completing = True
        try:
            if self._on_complete is not None:
                self._on_complete(key, result)
        except BaseException:
            with self._lock:
                gather.is_completing = False
            raise
        with self._lock:
            del self._open[key]
            self._done.add(key, result)
        for on_gathered, _ in gather.waiting:
            on_gathered(result)

    def restore(self, results: GatherResults) -> None:
        """Load the results that the previous process has logged."""
        for key, result in results.items():
            self._done.add(key, result)

    def missing(self, key: CollectiveKey) -> list[int]:
        """The members that have not joined yet."""
        gather = self._open.get(key, _AllGather())
        return sorted(set(self._expected(key)) - gather.contributed.keys())

    def waiting(self) -> list[tuple[CollectiveKey, Request]]:
        """The waiting requests."""
        with self._lock:
            return [
                (key, request)
                for key, gather in self._open.items()
                for _, request in gather.waiting
                if request is not None and not request.is_replied
            ]


def _bytes(result: Gathered) -> int:
    return sum(tensor.nbytes for tensors in result for tensor in tensors)

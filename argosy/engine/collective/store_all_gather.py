"""An all-gather of strings through the store, with a constant number of requests per rank.

    each rank         set value/r, add 1 to the number of ranks that have arrived
    the last one      multi_get all values, set the result
    the others        wait for the result, get it

The result is run-length encoded: equal values of consecutive ranks, such as digests or the ids of hosts, are sent once.
"""

# SPDX-License-Identifier: Apache-2.0
import itertools
import json
import threading
from datetime import timedelta

from torch._C._distributed_c10d import Store
from torch.distributed import DistStoreError

_WAIT = timedelta(seconds=30)
"""After this time a rank looks whether the last one has arrived, and was killed before it wrote the result."""


class StoreAllGather:
    """The all-gather of this rank, in a thread: while rank 0 is stopped, a request to the store blocks forever."""

    def __init__(self, store: Store, key: str, rank: int, size: int, value: str) -> None:
        self.values: list[str] = []
        """By rank: its value; empty until the all-gather is complete."""
        self.failed = False
        """True if the store is lost."""
        self.cancelled = threading.Event()
        """Set when the result is no longer needed."""
        self._store, self._key, self._rank, self._size, self._value = store, key, rank, size, value
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def is_complete(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return bool(self.values)

    def _run(self) -> None:
        try:
            self.values = self._gather()
        except RuntimeError:  # raised by torch.distributed when the store is lost
            self.failed = True

    def _gather(self) -> list[str]:
        store, arrived, result = self._store, f"{self._key}/arrived", f"{self._key}/result"
        keys = [f"{self._key}/{rank}" for rank in range(self._size)]
        store.set(keys[self._rank], self._value)
        count = store.add(arrived, 1)
        while count < self._size:
            try:
                store.wait([result], _WAIT)
                return decode(store.get(result))
            except DistStoreError:  # the wait has timed out
                if self.cancelled.is_set():
                    return []
                count = store.add(arrived, 0)
        values = [value.decode() for value in store.multi_get(keys)]
        store.set(result, encode(values))
        return values


def encode(values: list[str]) -> str:
    """Runs of equal values, as JSON: [["a", 3], ["b", 1]]."""
    return json.dumps([[value, len(list(run))] for value, run in itertools.groupby(values)])


def decode(text: bytes) -> list[str]:
    """The values that `encode` was given."""
    return [value for value, count in json.loads(text) for _ in range(count)]

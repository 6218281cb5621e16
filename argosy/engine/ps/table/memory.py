"""The rows of a table that are in memory: found by id, each with its record, its version and its last use.

slot      0        1        2        3 …                 grows by doubling
ids       | 17     | 4      | –      | 9
records   | [v|s]  | [v|s]  |        | [v|s]
versions  | 12     | 3      | 0      | 40                when the row changed last; 0: the slot is free
uses      | 8      | 8      | 1      | 9                 when it was last asked for; only if rows may be evicted
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.ps.table.index import make_index

_LEAST = 1024
_NEVER = torch.iinfo(torch.int64).max


class MemoryRows:
    """Rows by id; who calls holds a lock."""

    def __init__(self, width: int, limit: int) -> None:
        """Records of `width` floats; about `limit` of them are wanted at most, 0: any number."""
        self._index = make_index()
        self._limit = limit
        self._now = 0
        self.records = torch.empty(0, width)
        self.ids, self.versions, self.uses = (torch.empty(0, dtype=torch.int64) for _ in range(3))

    def __len__(self) -> int:
        return len(self._index)

    def find(self, ids: Tensor) -> Tensor:
        """The slot of each id, -1 if it is not here."""
        slots = self._index.find(ids)
        if self._limit:
            self._use(slots[slots >= 0])
        return slots

    def insert(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The slot of each id; and the positions of those that are new, which the caller fills by `fill`."""
        self._reserve(max(self._index.high, len(self._index) + len(ids)))
        slots, fresh = self._index.insert(ids)
        if self._limit:
            self._use(slots)
        return slots, fresh

    def fill(self, slots: Tensor, ids: Tensor, records: Tensor, versions: Tensor) -> None:
        """Set everything about these rows."""
        self.ids.index_copy_(0, slots, ids)
        self.records.index_copy_(0, slots, records)
        self.versions.index_copy_(0, slots, versions)

    def changed(self, mark: int) -> Tensor:
        """The slots of the rows with a version above the mark."""
        return torch.nonzero(self.versions[: self._index.high] > mark).squeeze(1)

    def at(self, slots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Copies of ids, records and versions."""
        return tuple(t.index_select(0, slots) for t in (self.ids, self.records, self.versions))  # type: ignore[return-value]  # three of them

    def least_used(self, count: int) -> Tensor:
        """The slots of so many rows that have not been asked for longest."""
        high = self._index.high
        uses = torch.where(self.versions[:high] > 0, self.uses[:high], _NEVER)
        return torch.topk(uses, count, largest=False, sorted=False).indices

    def drop(self, slots: Tensor, ids: Tensor) -> None:
        """Forget these rows."""
        self._index.erase(ids)
        self.versions.index_fill_(0, slots, 0)

    def memory_bytes(self) -> int:
        arrays = (self.records, self.ids, self.versions, self.uses)
        return sum(array.nbytes for array in arrays) + self._index.memory_bytes()

    def _use(self, slots: Tensor) -> None:
        self._now += 1
        self.uses.index_fill_(0, slots, self._now)

    def _reserve(self, wanted: int) -> None:
        """Room for so many slots: doubling, so that a row is copied but a few times in its life."""
        have = len(self.ids)
        if wanted <= have:
            return
        size = max(wanted, _LEAST, 2 * have)
        if self._limit:  # beyond the limit there is room for a batch, and not for as much again
            size = max(wanted, min(size, self._limit))
        self.records = _longer(self.records, size)
        self.ids, self.versions = _longer(self.ids, size), _longer(self.versions, size)
        if self._limit:
            self.uses = _longer(self.uses, size)


def _longer(old: Tensor, size: int) -> Tensor:
    new = torch.empty(size, *old.shape[1:], dtype=old.dtype)
    new[: len(old)] = old
    if old.dtype == torch.int64:
        new[len(old) :] = 0
    return new

"""id ─▶ slot: a hash table in C++, or a dict without a compiler."""

# SPDX-License-Identifier: Apache-2.0
import weakref
from ctypes import c_int64, c_void_p
from typing import Any, Protocol

import torch
from torch import Tensor

from argosy.engine import kernels
from argosy.engine.kernels.signatures import INDEX_ERASE, INDEX_FIND, INDEX_INSERT


class Index(Protocol):
    """Slots are numbers from 0; those of erased ids are reused. Not thread-safe."""

    def __len__(self) -> int: ...

    @property
    def high(self) -> int:
        """An upper bound of all slots that were ever used."""

    def find(self, ids: Tensor) -> Tensor:
        """The slot of each id; -1: unknown."""

    def insert(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The slot of each id, new ones for unknown ids; and the positions of the first occurrences of these."""

    def erase(self, ids: Tensor) -> None:
        """Remove ids; unknown ids have no effect."""

    def memory_bytes(self) -> int:
        """Its memory use."""


def make_index() -> Index:
    """An empty index, of the fastest available kind."""
    return DictIndex() if kernels.unavailable() else HashIndex()


class HashIndex:
    """kernels/source/hash_index.cpp; ids are int64 and contiguous."""

    def __init__(self) -> None:
        self._library = kernels.library()
        for name, result in _RESULTS.items():
            getattr(self._library, f"argosy_index_{name}").restype = result
        self._handle = c_void_p(self._library.argosy_index_new())
        _check(bool(self._handle))
        weakref.finalize(self, self._library.argosy_index_delete, self._handle)

    def __len__(self) -> int:
        return int(self._library.argosy_index_size(self._handle))

    @property
    def high(self) -> int:
        return int(self._library.argosy_index_high(self._handle))

    def find(self, ids: Tensor) -> Tensor:
        slots = torch.empty_like(ids)
        INDEX_FIND((ids, slots), self._handle, c_int64(len(ids)))
        return slots

    def insert(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        slots, fresh = torch.empty_like(ids), torch.empty_like(ids)
        count = int(INDEX_INSERT((ids, slots, fresh), self._handle, c_int64(len(ids))))
        _check(count >= 0)
        return slots, fresh[:count]

    def erase(self, ids: Tensor) -> None:
        _check(INDEX_ERASE((ids,), self._handle, c_int64(len(ids))) >= 0)

    def memory_bytes(self) -> int:
        return int(self._library.argosy_index_bytes(self._handle))


_RESULTS: dict[str, Any] = {
    "new": c_void_p,
    "delete": None,
    "find": None,
    **dict.fromkeys(("size", "high", "bytes", "insert", "erase"), c_int64),
}


def _check(has_memory: bool) -> None:
    if not has_memory:
        raise MemoryError("out of memory for the ids of a table; set memory_rows, or use more servers")


class DictIndex:
    """The same in Python; equal calls give equal slots."""

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self._free: list[int] = []
        self.high = 0

    def __len__(self) -> int:
        return len(self._slots)

    def find(self, ids: Tensor) -> Tensor:
        return torch.tensor([self._slots.get(key, -1) for key in ids.tolist()], dtype=torch.int64)

    def insert(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        slots, fresh = [], []
        for position, key in enumerate(ids.tolist()):
            slot = self._slots.get(key)
            if slot is None:
                slot = self._slots[key] = self._take_slot()
                fresh.append(position)
            slots.append(slot)
        return torch.tensor(slots, dtype=torch.int64), torch.tensor(fresh, dtype=torch.int64)

    def erase(self, ids: Tensor) -> None:
        slots = (self._slots.pop(key, None) for key in ids.tolist())
        self._free.extend(slot for slot in slots if slot is not None)

    def memory_bytes(self) -> int:
        return 100 * len(self._slots) + 8 * len(self._free)  # a dict's entry with its two numbers

    def _take_slot(self) -> int:
        if self._free:
            return self._free.pop()
        self.high += 1
        return self.high - 1

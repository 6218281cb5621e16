"""Milliseconds per step by rank and step, in at most MAX_COLUMNS columns: the heat map.

column   1..4   5..8   9..12        width 4; twice as wide as soon as there are too many columns
rank 0   41.0   40.2   40.9
rank 1   41.3   55.8   41.1
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

MAX_COLUMNS = 160
KEYS = ("own", "period", "exposed")
"""own: a rank's computation, script and input, without waiting for others: where a straggler shows."""


@dataclass
class _Column:
    """Sums over the steps of a column, by rank."""

    steps: dict[int, int] = field(default_factory=dict)
    sums: dict[str, dict[int, float]] = field(default_factory=lambda: {key: {} for key in KEYS})

    def add(self, rank: int, steps: int, sums: dict[str, float]) -> None:
        self.steps[rank] = self.steps.get(rank, 0) + steps
        for key in KEYS:
            self.sums[key][rank] = self.sums[key].get(rank, 0.0) + sums[key]

    def merge(self, other: "_Column") -> None:
        for rank, steps in other.steps.items():
            self.add(rank, steps, {key: other.sums[key][rank] for key in KEYS})

    def remove(self, rank: int) -> None:
        self.steps.pop(rank, None)
        for key in KEYS:
            self.sums[key].pop(rank, None)

    def means(self, ranks: Iterable[int]) -> dict[str, list[float | None]]:
        return {
            key: [
                round(self.sums[key][rank] / self.steps[rank], 3) if self.steps.get(rank) else None
                for rank in ranks
            ]
            for key in KEYS
        }


@dataclass
class StepGrid:
    """The columns, and which of them have changed."""

    width: int = 1
    ranks: list[int] = field(default_factory=list)
    _columns: dict[int, _Column] = field(default_factory=dict)
    """By its first step minus one, a multiple of the width."""
    _last: dict[int, int] = field(default_factory=dict)
    """By rank, its last step."""
    _changed: set[int] = field(default_factory=set)
    _reset: bool = False

    def add_record(self, rank: int, record: dict[str, Any]) -> None:
        """Add a `steps` record of a rank; raises KeyError, TypeError or ValueError if it is malformed."""
        last, steps, group = int(record["step"]), int(record["steps"]), int(record.get("group") or 1)
        if steps < 1 or group < 1:
            raise ValueError(f"a record of {steps} steps in groups of {group}")
        if last - steps < self._last.get(rank, 0):
            self._forget(rank, last - steps)  # the job has resumed from a checkpoint
        self._last[rank] = last
        periods = record["period_ms"]
        parts = [record.get(key) or [0.0] * len(periods) for key in ("busy_ms", "outside_ms", "exposed_ms")]
        step = last - steps
        for period, busy, outside, exposed in zip(periods, *parts, strict=True):
            count = min(group, last - step)
            if count < 1:
                raise ValueError(f"more entries than the {steps} steps of the record")
            step += count
            sums = {"own": (busy + outside) * count, "period": period * count, "exposed": exposed * count}
            self._add(rank, step, count, sums)

    def _add(self, rank: int, step: int, count: int, sums: dict[str, float]) -> None:
        if rank not in self.ranks:
            self.ranks = sorted([*self.ranks, rank])
            self._reset = True
        start = (step - 1) // self.width * self.width
        self._columns.setdefault(start, _Column()).add(rank, count, sums)
        self._changed.add(start)
        while len(self._columns) > MAX_COLUMNS:
            self._widen()

    def _widen(self) -> None:
        self.width *= 2
        columns: dict[int, _Column] = {}
        for start, column in sorted(self._columns.items()):
            columns.setdefault(start // self.width * self.width, _Column()).merge(column)
        self._columns, self._reset = columns, True

    def _forget(self, rank: int, step: int) -> None:
        """Remove what a rank reported after a step that it repeats now."""
        for start in [start for start in self._columns if start >= step]:
            self._columns[start].remove(rank)
            if not self._columns[start].steps:
                del self._columns[start]
        self._reset = True

    def changes(self) -> dict[str, Any] | None:
        """The columns that have changed since the last call; all of them, with `reset`, if their width changed."""
        if self._reset:
            self._reset = False
            self._changed.clear()
            return self.snapshot()
        if not self._changed:
            return None
        changed, self._changed = self._changed & self._columns.keys(), set()
        return self._message(changed)

    def snapshot(self) -> dict[str, Any]:
        """All columns."""
        return {"reset": True} | self._message(self._columns)

    def _message(self, starts: Iterable[int]) -> dict[str, Any]:
        columns = {str(start + 1): self._columns[start].means(self.ranks) for start in sorted(starts)}
        return {"width": self.width, "ranks": self.ranks, "columns": columns}

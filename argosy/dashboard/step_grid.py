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


_Column = dict[int, list[float]]
"""By rank: the number of its steps, and the sums over them in the order of KEYS."""


def _means(column: _Column, ranks: Iterable[int]) -> dict[str, list[float | None]]:
    rows = [column.get(rank) for rank in ranks]
    return {
        key: [round(row[place] / row[0], 3) if row else None for row in rows]
        for place, key in enumerate(KEYS, start=1)
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
        if rank not in self.ranks:
            self.ranks = sorted([*self.ranks, rank])
            self._reset = True
        step, start, sums = last - steps, -1, [0.0] * 4
        for period, busy, outside, exposed in zip(periods, *parts, strict=True):
            count = min(group, last - step)
            if count < 1:
                raise ValueError(f"more entries than the {steps} steps of the record")
            step += count
            if (step - 1) // self.width * self.width != start:
                start, sums = self._row((step - 1) // self.width * self.width, rank)
            sums[0] += count
            sums[1] += (busy + outside) * count
            sums[2] += period * count
            sums[3] += exposed * count
        while len(self._columns) > MAX_COLUMNS:
            self._widen()

    def _row(self, start: int, rank: int) -> tuple[int, list[float]]:
        self._changed.add(start)
        return start, self._columns.setdefault(start, {}).setdefault(rank, [0.0] * 4)

    def _widen(self) -> None:
        self.width *= 2
        columns: dict[int, _Column] = {}
        for start, column in sorted(self._columns.items()):
            wide = columns.setdefault(start // self.width * self.width, {})
            for rank, sums in column.items():
                wide[rank] = [a + b for a, b in zip(wide.get(rank, [0.0] * 4), sums, strict=True)]
        self._columns, self._reset = columns, True

    def _forget(self, rank: int, step: int) -> None:
        """Remove what a rank reported after a step that it repeats now."""
        for start in [start for start in self._columns if start >= step]:
            self._columns[start].pop(rank, None)
            if not self._columns[start]:
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
        columns = {str(start + 1): _means(self._columns[start], self.ranks) for start in sorted(starts)}
        return {"width": self.width, "ranks": self.ranks, "columns": columns}

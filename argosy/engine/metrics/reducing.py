"""Every watched value of a job, reduced over the ranks, in the order of steps: for sinks that keep all points."""

# SPDX-License-Identifier: Apache-2.0
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from argosy.engine.metrics.job_directory import Record
from argosy.engine.metrics.job_view import reduced

WAIT_S = 5.0
"""How long to wait for the values of other ranks; records arrive within a second."""


@dataclass
class _Open:
    """The values of a step that ranks may still add to."""

    reduce: str
    wall_time: float
    since: float
    by_rank: dict[int, float] = field(default_factory=dict)


@dataclass
class ReducedValues:
    """Collects `values` records."""

    wait_s: float = WAIT_S
    _open: dict[tuple[str, int], _Open] = field(default_factory=dict)

    def update(
        self, records: Sequence[Record], now: float | None = None
    ) -> Iterator[tuple[str, int, float, float]]:
        """Add records; yields name, step, time and value of those that are complete."""
        now = time.monotonic() if now is None else now
        for record in records:
            if record.kind == "values" and record.process.startswith("rank"):
                self._add(record, now)
        for key in [key for key, value in self._open.items() if now - value.since >= self.wait_s]:
            yield self._take(key)

    def rest(self) -> Iterator[tuple[str, int, float, float]]:
        """All that are left."""
        for key in list(self._open):
            yield self._take(key)

    def _add(self, record: Record, now: float) -> None:
        for name, value in record.get("values", {}).items():
            reduce = record.get("reduce", {}).get(name, "mean")
            key = (name, int(record["step"]))
            self._open.setdefault(key, _Open(reduce, record.time, now)).by_rank[record.number] = float(value)

    def _take(self, key: tuple[str, int]) -> tuple[str, int, float, float]:
        value = self._open.pop(key)
        return *key, value.wall_time, reduced(value.by_rank, value.reduce)

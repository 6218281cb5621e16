"""The state of a job, summarized from its records: what every view shows.

records ──▶ JobView.update ──▶ ranks, servers, watched values, rates, remaining time

A view is bounded: a series keeps at most MAX_POINTS points, and drops every second one when it is full.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from argosy.engine.metrics.job_directory import Record

MAX_POINTS = 2_000
OPEN_STEPS = 256
RECENT_RECORDS = 10
"""Rates are those of the last records: some ten seconds."""
_DURATIONS = ("period_ms", "busy_ms", "exposed_ms", "outside_ms", "input_ms")
_PHASES = ("forward", "backward", "optimize", "communicate", "exposed", "other")


@dataclass
class Series:
    """Values over steps, reduced over the ranks, and thinned out to at most MAX_POINTS."""

    reduce: str = "mean"
    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    _by_rank: dict[int, dict[int, float]] = field(default_factory=dict)
    """By step, the values of the ranks; of the last OPEN_STEPS steps, which ranks that lag behind may still add to."""
    _last: dict[int, int] = field(default_factory=dict)
    """By rank, its last step."""
    _stride: int = 1
    _count: int = 0

    @property
    def last(self) -> float:
        return self.values[-1]

    def add(self, rank: int, step: int, value: float) -> None:
        """Add the value of a rank. A step that a rank has had before: the job has resumed from a checkpoint."""
        if step < self._last.get(rank, step) and rank == min(self._last):
            self._truncate(step)
        self._last[rank] = step
        if not self.steps or step > self.steps[-1]:
            self._append(step, value)
            self._by_rank[step] = {rank: value}
            while len(self._by_rank) > OPEN_STEPS:
                del self._by_rank[next(iter(self._by_rank))]
        elif (known := self._by_rank.get(step)) is not None:
            known[rank] = value
            place = bisect_left(self.steps, step)
            if place < len(self.steps) and self.steps[place] == step:
                self.values[place] = reduced(known, self.reduce)

    def _append(self, step: int, value: float) -> None:
        self._count += 1
        if len(self.steps) > 1 and self._count % self._stride:
            del self.steps[-1], self.values[-1]  # the last point is always there
        self.steps.append(step)
        self.values.append(value)
        if len(self.steps) > MAX_POINTS:
            del self.steps[1::2], self.values[1::2]
            self._stride *= 2

    def _truncate(self, step: int) -> None:
        place = bisect_left(self.steps, step)
        del self.steps[place:], self.values[place:]
        self._by_rank = {s: values for s, values in self._by_rank.items() if s < step}


def reduced(values: dict[int, float], how: str) -> float:
    """One value for those of the ranks."""
    match how:
        case "min":
            return min(values.values())
        case "max":
            return max(values.values())
        case "last":
            return values[max(values)]
        case _:
            return math.fsum(values.values()) / len(values)


@dataclass
class RankView:
    """The last state of a rank or worker."""

    rank: int
    start: dict[str, Any] = field(default_factory=dict)
    """Its `start` record."""
    time: float = 0.0
    """Of its last record."""
    step: int = 0
    recent: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=RECENT_RECORDS))
    """Its last `steps` records."""
    _totals: deque[dict[str, float]] = field(default_factory=lambda: deque(maxlen=RECENT_RECORDS))
    """The milliseconds of each of them, by key, summed over its steps."""
    _known: dict[str, float | None] = field(default_factory=dict)
    """What was computed since the last record: several views ask for the same, twice a second."""
    sample: dict[str, Any] | None = None
    """Its last `sample` record."""
    progress: dict[str, Any] | None = None
    outcome: str | None = None
    """Not None once it has exited."""
    sent_bytes: int = 0
    examples: int = 0
    history: Series = field(default_factory=Series)
    """Milliseconds from step to step."""
    busy: Series = field(default_factory=Series)
    """Milliseconds of its computation per step."""

    def mean_ms(self, key: str) -> float | None:
        """The mean of a duration per step over the last records, such as `busy_ms`; None without steps."""
        if key not in self._known:
            steps = sum(record["steps"] for record in self.recent)
            self._known[key] = sum(totals[key] for totals in self._totals) / steps if steps else None
        return self._known[key]

    def add(self, record: dict[str, Any]) -> dict[str, float]:
        """Add a `steps` record; returns the milliseconds of its steps, by key."""
        totals = {key: _total(record, key) for key in _DURATIONS}
        self.recent.append(record)
        self._totals.append(totals)
        self._known.clear()
        return totals

    def clear(self) -> None:
        """Drop the last records: a new process begins."""
        self.recent.clear()
        self._totals.clear()
        self._known.clear()

    def per_s(self, key: str) -> float | None:
        """A count per second over the last records, such as `examples` or `steps`."""
        name = f"{key} per second"
        if name not in self._known:
            seconds = sum(record.get("wall_s") or 0.0 for record in self.recent)
            count = sum(record.get(key) or 0 for record in self.recent)
            self._known[name] = count / seconds if seconds else None
        return self._known[name]

    @property
    def rss(self) -> int | None:
        return self.recent[-1].get("rss") if self.recent else None

    @property
    def exposed_fraction(self) -> float | None:
        """The share of a step in which the rank is blocked on others."""
        period, exposed = self.mean_ms("period_ms"), self.mean_ms("exposed_ms")
        return exposed / period if period and exposed is not None else None


def _total(record: dict[str, Any], key: str) -> float:
    """The sum over the steps of a record: each entry is a mean of `group` steps, the last one of the rest."""
    entries, group = record.get(key) or [], record.get("group") or 1
    if not entries:
        return 0.0
    rest = record["steps"] - group * (len(entries) - 1)
    return float(group * sum(entries[:-1]) + rest * entries[-1])


@dataclass
class ServerView:
    """The last state of a parameter server."""

    number: int
    start: dict[str, Any] = field(default_factory=dict)
    time: float = 0.0
    tables: dict[str, Any] | None = None
    """Its last `tables` record."""
    outcome: str | None = None


@dataclass
class JobView:
    """The state of a job."""

    ranks: dict[int, RankView] = field(default_factory=dict)
    servers: dict[int, ServerView] = field(default_factory=dict)
    values: dict[str, Series] = field(default_factory=dict)
    events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=1000))
    strategy: dict[str, Any] | None = None
    examples_per_s: Series = field(default_factory=lambda: Series("last"))

    def update(self, records: Iterable[Record]) -> None:
        """Add records, in the order of their times."""
        for record in records:
            if not record.process:
                self.events.append(record.fields)
            elif record.process.startswith("server"):
                self._update_server(record)
            else:
                self._update_rank(record)

    def _update_server(self, record: Record) -> None:
        server = self.servers.setdefault(record.number, ServerView(record.number))
        server.time = record.time
        match record.kind:
            case "start":
                server.start, server.outcome = record.fields, None
            case "tables":
                server.tables = record.fields
            case "end":
                server.outcome = str(record.get("outcome", ""))

    def _update_rank(self, record: Record) -> None:
        rank = self.ranks.setdefault(record.number, RankView(record.number))
        rank.time = record.time
        match record.kind:
            case "start":
                rank.start, rank.outcome = record.fields, None
                rank.clear()
            case "strategy":
                self.strategy = record.fields
            case "steps":
                self._add_steps(rank, record)
            case "sample":
                rank.sample = record.fields
            case "values":
                self._add_values(rank, record)
            case "progress":
                rank.progress = record.fields
            case "end":
                rank.outcome = str(record.get("outcome", ""))

    def _add_values(self, rank: RankView, record: Record) -> None:
        for name, value in record.get("values", {}).items():
            reduce = record.get("reduce", {}).get(name, "mean")
            # "nan", "inf" and "-inf" are strings in JSON.
            self.values.setdefault(name, Series(reduce)).add(rank.rank, record["step"], float(value))

    def _add_steps(self, rank: RankView, record: Record) -> None:
        rank.step = int(record["step"])
        totals = rank.add(record.fields)
        rank.sent_bytes += record.get("sent_bytes") or 0
        rank.examples += record.get("examples") or 0
        steps = max(1, record["steps"])
        rank.history.add(rank.rank, rank.step, totals["period_ms"] / steps)
        rank.busy.add(rank.rank, rank.step, totals["busy_ms"] / steps)
        if rank.rank == min(self.ranks) and (total := self.total_per_s("examples")) is not None:
            self.examples_per_s.add(0, rank.step, total)

    # --- the job as a whole ---------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The step that all ranks have finished; with asynchronous workers that of the foremost one."""
        return max((rank.step for rank in self.ranks.values()), default=0)

    @property
    def step_ms(self) -> float | None:
        """The median over the ranks of the time from step to step."""
        periods = [p for rank in self.ranks.values() if (p := rank.mean_ms("period_ms")) is not None]
        return median(periods) if periods else None

    def total_per_s(self, key: str) -> float | None:
        """A count per second, summed over the ranks: `examples`, `sent_bytes`."""
        rates = [r for rank in self.ranks.values() if (r := rank.per_s(key)) is not None]
        return math.fsum(rates) if rates else None

    @property
    def exposed_fraction(self) -> float | None:
        """The mean over the ranks."""
        shares = [f for rank in self.ranks.values() if (f := rank.exposed_fraction) is not None]
        return math.fsum(shares) / len(shares) if shares else None

    @property
    def slowest(self) -> RankView | None:
        """The rank with the longest computation and input per step; None with fewer than two ranks."""
        own_ms = {rank.rank: _own_ms(rank) for rank in self.ranks.values()}
        known = {rank: ms for rank, ms in own_ms.items() if ms is not None}
        return self.ranks[max(known, key=lambda rank: known[rank])] if len(known) > 1 else None

    @property
    def progress(self) -> dict[str, Any] | None:
        """The progress of the first rank that reports it."""
        return next((r.progress for _, r in sorted(self.ranks.items()) if r.progress is not None), None)

    def remaining_s(self, now: float) -> float | None:
        """The estimated time until the end of the last epoch; None if the length is unknown."""
        progress = self.progress
        if progress is None or self.step_ms is None:
            return None
        batch, batches = progress.get("batch"), progress.get("batches")
        epoch, epochs = progress.get("epoch"), progress.get("epochs")
        if not batches or batch is None:
            return None
        left = batches - batch
        if epoch is not None and epochs:
            left += batches * max(0, epochs - epoch)
        return max(0.0, float(left) * self.step_ms / 1000 - max(0.0, now - float(progress["time"])))


def _own_ms(rank: RankView) -> float | None:
    """What a rank needs per step without waiting for others."""
    busy, outside = rank.mean_ms("busy_ms"), rank.mean_ms("outside_ms")
    return None if busy is None else busy + (outside or 0.0)


def phases(sample: dict[str, Any]) -> dict[str, float]:
    """The milliseconds of a sampled step by phase, in the order of a step; they add up to the step."""
    return {phase: float(sample.get(f"{phase}_ms") or 0.0) for phase in _PHASES}

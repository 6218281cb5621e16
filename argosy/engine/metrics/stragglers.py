"""Stragglers: the ranks that the others wait for, and why, from the records of a job.

    steps records ──▶ slots of each rank ──▶ excess over the median of the other ranks ──▶ test ──▶ cause ──▶ event

In a synchronous job all ranks have the same period; a straggler has the longest own time (busy + outside) and the
others are blocked. Workers of an asynchronous job do not wait for each other: they are compared by their periods.

The test is sequential. It looks at the last 14 to 20 steps, and for what is hidden in noise at the last 32 to 256. A
rank is a straggler if the lower confidence bound of its mean excess is above MIN_EXCESS. Means are trimmed, so
that a pause of the garbage collector, a checkpoint or an evaluation does not count; the deviation is the larger one of
the window's and of the job's so far; and the excess must last for longer than those that passed (transients.py).
"""

# SPDX-License-Identifier: Apache-2.0
import math
from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

from argosy.engine.metrics.job_directory import Record
from argosy.engine.metrics.slow_links import SlowLinks
from argosy.engine.metrics.straggler_causes import SlowdownCause, Window, delayed_part, explain
from argosy.engine.metrics.transients import Slowdown, Transients

MIN_EXCESS = 0.03
"""The lower confidence bound of the excess of a straggler, as a part of the others' time."""
_MIN_MEAN = 0.075
"""The mean excess of a straggler."""
MIN_IMPACT = 0.02
"""A straggler must lengthen the step of the job by at least this part."""
_CONFIDENCE = 4.5
"""In standard errors of the mean. Calibrated by simulation (tests/engine/metrics/test_stragglers.py)."""
_WINDOWS = {14: 5.0, 16: 5.0, 18: 5.0, 20: 5.0, 32: 5.0, 64: 4.0, 128: 3.0, 256: 2.5}
"""Slots, and how many times the drift of this job the mean over so many slots must be: the longer, the less."""
_LONGEST = max(_WINDOWS)
_DELAYED_PART = 0.05
"""Other processes disturb a rank if it waits for a core for this part of its own time."""
_LOAD_S = 3.0
"""A slowdown beside other processes must last for so long: commands of a second or two come and go."""
_LOADED_SLOTS = 64
"""Where other processes disturb all ranks, a rank that they delay more needs so many slots."""
_UNKNOWN_SLOTS, _UNKNOWN_PATIENCE = 48, 128
"""A rank that is disturbed before so many slots are known needs that many: whether the load moves is not known yet."""
_BLOCK = 8
"""Every so many slots, the excess of the last 16 is noted: how much it drifts in this job."""
_EVALUATE_EVERY = 2
_WARM_UP_STEPS = 4
_HISTORY_BLOCKS, _MIN_HISTORY = 64, 4
_RECOVERED_SLOTS = 20
"""A straggler has recovered when it was as fast as the others for so many slots."""
_MAX_AHEAD = 64
"""Asynchronous workers: unpaired slots of a worker that is ahead."""
_SILENT_S = 30.0
"""A rank without records for so long, while others have some, is not compared."""
_MEASURES = ("period_ms", "busy_ms", "exposed_ms", "outside_ms", "input_ms")


@dataclass
class _Slot:
    """Times of a rank, summed over the steps of a slot."""

    steps: int = 0
    ms: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_MEASURES, 0.0))

    def add(self, steps: int, means: dict[str, float]) -> None:
        self.steps += steps
        for name, value in means.items():
            self.ms[name] += steps * value


@dataclass
class _Rank:
    """What is known of a rank."""

    number: int
    is_worker: bool = False
    host: str = ""
    is_over: bool = False
    time: float = 0.0
    first_step: int = -1
    """The first step of this incarnation."""
    step: int = 0
    slots: dict[int, _Slot] = field(default_factory=dict)
    """Slots that are not compared yet, by their numbers."""
    windows: deque[dict[str, float]] = field(default_factory=lambda: deque(maxlen=_LONGEST))
    """The compared slots: milliseconds per step."""
    excess: deque[float] = field(default_factory=lambda: deque(maxlen=_LONGEST))
    """Relative to the median of the others, slot by slot."""
    history: deque[float] = field(default_factory=lambda: deque(maxlen=_HISTORY_BLOCKS))
    """The medians of earlier windows of 16 slots."""
    deviations: deque[float] = field(default_factory=lambda: deque(maxlen=_HISTORY_BLOCKS))
    records: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=64))
    """Its last `steps` records."""
    reported: SlowdownCause | None = None
    """Not None while it is a straggler."""
    slots_since: int = 0
    """Compared slots since it was reported."""
    slowdown: Slowdown = field(default_factory=Slowdown)

    def begin(self) -> None:
        """A new incarnation: what was measured before the restart does not count."""
        self.first_step, self.is_over, self.slowdown = -1, False, Slowdown()
        for values in (self.slots, self.windows, self.excess, self.records):
            values.clear()


@dataclass
class StragglerDetector:
    """Finds the stragglers of a job, while its records arrive."""

    _ranks: dict[int, _Rank] = field(default_factory=dict)
    _slot_steps: int = 1
    """Steps per slot: the largest `group` of the records, as a power of two."""
    _next: int = 0
    """The number of the next slot to compare."""
    _num_compared: int = 0
    _transients: Transients = field(default_factory=Transients)
    _links: SlowLinks = field(default_factory=SlowLinks)

    def update(self, records: Iterable[Record]) -> list[dict[str, Any]]:
        """Add records; returns the new events, of kind `straggler` or `straggler_recovered`."""
        events: list[dict[str, Any]] = []
        for record in records:
            if record.process.startswith("rank"):
                self._add(record)
                if record.kind == "steps":
                    events += self._compare()
            events += self._links.update(record)
        return events

    # --- from records to slots ------------------------------------------------------------------------

    def _add(self, record: Record) -> None:
        rank = self._ranks.setdefault(record.number, _Rank(record.number))
        rank.time = record.time
        match record.kind:
            case "start":
                self._begin(rank)
                rank.is_worker = record.get("role") == "worker"
                rank.host = str(record.get("host") or "")
            case "end":
                rank.is_over = True
            case "steps":
                self._add_steps(rank, record.fields)

    def _begin(self, rank: _Rank) -> None:
        rank.begin()
        self._next = 0

    def _add_steps(self, rank: _Rank, fields: dict[str, Any]) -> None:
        last, steps, group = int(fields["step"]), int(fields["steps"]), int(fields.get("group") or 1)
        lists = {name: fields.get(name) or [] for name in _MEASURES}
        entries = len(lists["period_ms"])
        if steps < 1 or not entries:
            return
        if last <= rank.step and rank.first_step >= 0:  # resumed from a checkpoint
            self._begin(rank)
        if rank.first_step < 0:
            rank.first_step = last - steps + 1
        rank.step = last
        rank.records.append(fields)
        if group > self._slot_steps:
            self._enlarge_slots(group)
        begin = last - steps
        for i in range(entries):
            end = min(begin + group, last)
            means = {name: float(values[i]) for name, values in lists.items() if i < len(values)}
            self._add_entry(rank, begin, end, means)
            begin = end

    def _add_entry(self, rank: _Rank, begin: int, end: int, means: dict[str, float]) -> None:
        """Distribute the mean of the steps from `begin` + 1 to `end` over the slots."""
        begin = max(begin, rank.first_step - 1 + _WARM_UP_STEPS)
        while begin < end:
            number = begin // self._slot_steps
            until = min(end, (number + 1) * self._slot_steps)
            rank.slots.setdefault(number, _Slot()).add(until - begin, means)
            begin = until

    def _enlarge_slots(self, group: int) -> None:
        self._slot_steps = 1 << (group - 1).bit_length()
        self._transients.clear()
        for rank in self._ranks.values():
            rank.slots.clear()
            rank.windows.clear()
            rank.excess.clear()
            rank.history.clear()
            rank.deviations.clear()
            rank.slowdown = Slowdown()

    # --- from slots to excesses -----------------------------------------------------------------------

    def _compare(self) -> list[dict[str, Any]]:
        """Compare the slots that all ranks have; returns events."""
        now = max(rank.time for rank in self._ranks.values())
        live = [r for r in self._ranks.values() if not r.is_over and now - r.time < _SILENT_S and r.step]
        events: list[dict[str, Any]] = []
        if len(live) < 2:
            return events
        is_async = all(r.is_worker for r in live) and _drifts(live, self._slot_steps)
        for numbers in self._async_slots(live) if is_async else self._sync_slots(live):
            slots = {}
            for rank, number in zip(live, numbers, strict=True):
                slot = rank.slots.pop(number)
                slots[rank.number] = {name: total / slot.steps for name, total in slot.ms.items()}
            self._add_excesses(live, slots, is_async)
            self._num_compared += 1
            if self._num_compared % _EVALUATE_EVERY == 0:
                events += self._evaluate(live, is_async, now)
            if self._num_compared % _BLOCK == 0:
                _end_block(live)
        return events

    def _sync_slots(self, live: Sequence[_Rank]) -> Iterator[list[int]]:
        """The slots that all ranks have completed."""
        limit = min(rank.step for rank in live) // self._slot_steps
        first = max(self._next, *(rank.first_step // self._slot_steps for rank in live))
        for number in range(first, limit):
            self._next = number + 1
            if all(self._is_complete(rank, number) for rank in live):
                yield [number] * len(live)
            else:  # warm-up, or a gap
                for rank in live:
                    rank.slots.pop(number, None)

    def _async_slots(self, live: Sequence[_Rank]) -> Iterator[list[int]]:
        """The oldest slot of each worker; of one that is ahead, only the newest slots are compared."""
        queues = [sorted(n for n in rank.slots if self._is_complete(rank, n)) for rank in live]
        for numbers in zip(*queues, strict=False):
            yield list(numbers)
        for rank in live:
            for number in sorted(rank.slots)[:-_MAX_AHEAD]:
                del rank.slots[number]

    def _is_complete(self, rank: _Rank, number: int) -> bool:
        slot = rank.slots.get(number)
        return slot is not None and slot.steps == self._slot_steps

    def _add_excesses(
        self, live: Sequence[_Rank], slots: dict[int, dict[str, float]], is_async: bool
    ) -> None:
        value = _period if is_async else _own
        ordered: list[float] = []
        for rank in live:
            insort(ordered, value(slots[rank.number]))
        for rank in live:
            slot = slots[rank.number]
            others = _median_without(ordered, value(slot))
            floor = max(0.02 * slot["period_ms"], 0.01)
            rank.excess.append((value(slot) - others) / max(others, floor))
            rank.windows.append(slot)
            rank.slots_since += 1
            if (passed := rank.slowdown.update(rank.excess)) is not None:
                self._transients.add(*passed)

    # --- the test -------------------------------------------------------------------------------------

    def _evaluate(self, live: Sequence[_Rank], is_async: bool, now: float) -> list[dict[str, Any]]:
        events = []
        noise = _Noise(live)
        for rank in live:
            if rank.reported is not None:
                events += self._check_recovered(rank, now)
            elif (slots := _significant(rank, noise)) and self._has_impact(rank, live, slots, is_async):
                others = [_window(other, slots) for other in live if other is not rank]
                cause = explain(_window(rank, slots), others, is_async)
                if self._may_pass(rank, cause, others, slots):
                    continue
                rank.reported, rank.slots_since = cause, 0
                events.append(
                    {
                        "time": now, "kind": "straggler", "role": "worker" if rank.is_worker else "rank",
                        "rank": rank.number, "host": rank.host, "cause": cause.cause, "because": cause.because,
                        "excess": round(cause.excess, 3), "step": rank.step, "text": cause.text(rank.number),
                    }
                )  # fmt: skip
        return events

    def _may_pass(self, rank: _Rank, cause: SlowdownCause, others: Sequence[Window], slots: int) -> bool:
        """Whether slowdowns like this one have passed by themselves, or other processes cause it for a moment."""
        lasting = rank.slowdown.slots
        delayed = median([delayed_part(other) for other in others])
        is_measured = cause.because in ("batch", "page_faults", "frequency")
        is_disturbed = max(delayed, delayed_part(_window(rank, slots))) >= _DELAYED_PART and not is_measured
        if lasting < self._transients.patience(cause.excess, is_disturbed):
            return True
        if not is_disturbed:
            return False
        lasting_s = lasting * self._slot_steps * rank.windows[-1]["period_ms"] / 1000
        return (
            lasting_s < _LOAD_S
            or (delayed >= _DELAYED_PART and slots < _LOADED_SLOTS)
            or (self._num_compared - lasting < _UNKNOWN_SLOTS and lasting < _UNKNOWN_PATIENCE)
        )

    def _has_impact(self, rank: _Rank, live: Sequence[_Rank], slots: int, is_async: bool) -> bool:
        """Whether the job would be faster without the excess of this rank."""
        if is_async:
            return True
        periods = trimmed_mean([slot["period_ms"] for slot in list(rank.windows)[-slots:]])
        own_ms = trimmed_mean([_own(slot) for slot in list(rank.windows)[-slots:]])
        others = [
            trimmed_mean([_own(slot) for slot in list(other.windows)[-slots:]])
            for other in live
            if other is not rank
        ]
        return own_ms - median(others) >= MIN_IMPACT * periods

    def _check_recovered(self, rank: _Rank, now: float) -> list[dict[str, Any]]:
        reported = rank.reported
        assert reported is not None, f"rank {rank.number} is no straggler"
        recent = list(rank.excess)[-_RECOVERED_SLOTS:]
        if rank.slots_since < _RECOVERED_SLOTS or trimmed_mean(recent) > max(MIN_EXCESS, reported.excess / 3):
            return []
        rank.reported = None
        return [
            {
                "time": now, "kind": "straggler_recovered", "role": "worker" if rank.is_worker else "rank",
                "rank": rank.number, "host": rank.host, "cause": reported.cause, "step": rank.step,
                "text": f"rank {rank.number} is as fast as the others again",
            }
        ]  # fmt: skip


class _Noise:
    """How much the excess of a rank varies in this job without a straggler."""

    def __init__(self, live: Sequence[_Rank]) -> None:
        self._live = live
        self._drifts: dict[int, float] = {}

    @cached_property
    def deviation(self) -> float:
        """The usual standard deviation of one slot, over the ranks and the job so far; 0 at the start."""
        deviations = [median(rank.deviations) for rank in self._live if rank.deviations]
        return median(deviations) if deviations else 0.0

    def drift(self, slots: int) -> float:
        """The standard deviation of the median of 16 slots, over the job before the last slots; 0 at the start."""
        if slots not in self._drifts:
            deviations = []
            for rank in self._live:
                if len(earlier := list(rank.history)[: -(slots // _BLOCK + 1)]) >= _MIN_HISTORY:
                    centre = median(earlier)
                    deviations.append(1.4826 * median([abs(excess - centre) for excess in earlier]))
            self._drifts[slots] = median(deviations) if deviations else 0.0
        return self._drifts[slots]


def _own(slot: dict[str, float]) -> float:
    return slot["busy_ms"] + slot["outside_ms"]


def _period(slot: dict[str, float]) -> float:
    return slot["period_ms"]


def _drifts(workers: Sequence[_Rank], slot_steps: int) -> bool:
    """Whether workers do not wait for each other: their step numbers differ, by more than the delay of records."""
    done = [worker.step - worker.first_step for worker in workers]
    rates = [_steps_per_s(worker) for worker in workers]
    return max(done) - min(done) > 4 * slot_steps + 1.5 * max(rates)


def _steps_per_s(worker: _Rank) -> float:
    recent = list(worker.records)[-4:]
    seconds = sum(float(record.get("wall_s") or 0.0) for record in recent)
    return sum(int(record["steps"]) for record in recent) / seconds if seconds else 0.0


def _median_without(ordered: Sequence[float], value: float) -> float:
    """The median of a sorted list without one of its values."""
    position = ordered.index(value)
    rest = len(ordered) - 1

    def at(i: int) -> float:
        return ordered[i if i < position else i + 1]

    return at(rest // 2) if rest % 2 else (at(rest // 2 - 1) + at(rest // 2)) / 2


def _significant(rank: _Rank, noise: _Noise) -> int:
    """The number of slots in which the excess of a rank is significant; 0 if it is not."""
    values = list(rank.excess)
    if len(values) < min(_WINDOWS) or median(values[-min(_WINDOWS) :]) <= MIN_EXCESS:
        return 0
    for slots, times_drift in _WINDOWS.items():
        if len(values) < slots:
            return 0
        window = values[-slots:]
        mean, error = (
            trimmed_mean(window),
            max(_winsorized_deviation(window), noise.deviation) / math.sqrt(slots),
        )
        if mean - _CONFIDENCE * error < MIN_EXCESS or mean < max(_MIN_MEAN, times_drift * noise.drift(slots)):
            continue
        if _persistent(window) > MIN_EXCESS:
            return slots
    return 0


def _persistent(window: Sequence[float]) -> float:
    """The excess that lasts for the whole window: the least of the medians of its thirds."""
    third = len(window) // 3
    return min(median(part) for part in (window[:third], window[third:-third], window[-third:]))


def _end_block(live: Sequence[_Rank]) -> None:
    for rank in live:
        window = list(rank.excess)[-2 * _BLOCK :]
        if len(window) == 2 * _BLOCK and rank.reported is None:
            rank.history.append(median(window))
            rank.deviations.append(_winsorized_deviation(window))


def _window(rank: _Rank, slots: int) -> Window:
    recent = list(rank.windows)[-slots:]
    means = {name: trimmed_mean([slot[name] for slot in recent]) for name in _MEASURES}
    return Window(rank.number, rank.host, means, _recent_records(rank, slots))


def _recent_records(rank: _Rank, slots: int) -> list[dict[str, Any]]:
    """The records of about the last slots; at least one."""
    chosen: list[dict[str, Any]] = []
    for record in reversed(rank.records):
        chosen.append(record)
        if sum(int(r["steps"]) for r in chosen) >= slots:
            break
    return chosen


# --- robust statistics --------------------------------------------------------------------------------


def trimmed_mean(values: Sequence[float]) -> float:
    """The mean without the largest and the smallest fifth."""
    cut = len(values) // 5
    middle = sorted(values)[cut : len(values) - cut]
    return math.fsum(middle) / len(middle)


def _winsorized_deviation(values: Sequence[float]) -> float:
    """The standard deviation for the error of a trimmed mean (Yuen): outliers are replaced by the next values."""
    ordered, cut = sorted(values), len(values) // 5
    low, high = ordered[cut], ordered[len(ordered) - 1 - cut]
    clipped = [min(max(value, low), high) for value in ordered]
    mean = math.fsum(clipped) / len(clipped)
    variance = math.fsum((value - mean) ** 2 for value in clipped) / max(1, len(clipped) - 1)
    return math.sqrt(variance) / (1 - 2 * cut / len(values))

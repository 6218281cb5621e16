"""Tuner: decides which setting each step of a job runs, block by block; a pure function of the blocks' figures.

    warm-up ──▶ plan ──▶ trial of the most promising setting ──▶ … ──▶ monitor ──▶ (the step time changes) plan ──▶ …
                         A B  B A  …  (comparison.py)            │
                         not while tuning has used its budget ───┘

All ranks have a tuner and give it the same figures, which they gather after each block: so all of them switch at the
same step. It reads no clock.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, Protocol

import numpy as np

from argosy.distributed.auto.comparison import (
    MAX_PAIRS,
    MIN_GAIN,
    TrialVerdict,
    compare,
    is_reversed,
    next_look,
)
from argosy.distributed.auto.setting import Setting

WARM_UP, WARM_UP_SKIPPED, SAMPLED = 12, 4, 4
"""Steps before the first plan; the first ones do not count, and node times are sampled in the last ones."""
_TRIAL_WARM_UP = 2
"""The first run compiles, the second one settles the memory."""
_CHANGE = 0.05
"""A step time that differs by this part, in two blocks in a row, has changed."""
_CHANGE_IN_TRIAL, _MANY = 0.15, 8
"""In a trial, of at least so many pairs."""
_PLAN_S = 0.3
"""What the first plan may cost; later ones are expected to cost as much as the last."""
_FAILURES = 3
"""So many settings in a row that are not faster end a round of trials."""


@dataclass(frozen=True)
class TunerLimits:
    """What tuning may cost, and what counts as a gain."""

    budget: float = 0.02
    """The part of the elapsed time that tuning may use."""
    samples: int = 8
    """The most settings that are verified after a plan."""
    min_gain: float = MIN_GAIN
    max_pairs: int = MAX_PAIRS
    monitor_steps: int = 20
    """Steps of a block between trials."""
    run: int = 1
    """Steps of one setting in a row, in a pair; k if gradients are merged over k steps."""


@dataclass(frozen=True)
class Proposal:
    """A setting that is worth a trial."""

    setting: Setting
    predicted_ms: float
    run: int = 1
    """Steps in a row, in a pair: more than one if switching to it moves variables."""
    skipped: int = 0
    """Of these, the first ones that do not count."""


@dataclass(frozen=True)
class TunerStep:
    """One step of a block."""

    setting: Setting
    pair: int = -1
    """The pair that its time belongs to; -1: none."""


@dataclass(frozen=True)
class Decision:
    """An entry of the decision log."""

    step: int
    kind: Literal["start", "plan", "switch", "keep", "change", "restore"]
    setting: Setting
    """That the job has from here on."""
    reason: str
    tried: Setting | None = None
    predicted_ms: float | None = None
    measured_ms: float | None = None
    """The median step of the tried setting; of a change: of the current one."""
    against_ms: float | None = None
    """The median step of the setting that it was compared with."""
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    spent_s: float = 0.0
    elapsed_s: float = 0.0


class Decider(Protocol):
    """What Autotune needs of a tuner."""

    setting: Setting
    decisions: list[Decision]
    spent_s: float
    elapsed_s: float
    reference_ms: float
    """The step time of the setting."""

    @property
    def wants_samples(self) -> bool:
        """Whether the times of nodes are to be sampled at the end of this block."""
        ...

    def next_block(self) -> list[TunerStep]:
        """The settings of the next steps."""
        ...

    def finish(self, times: Sequence[float], elapsed_s: float, overhead_s: float) -> bool:
        """The block is done: milliseconds of its steps, negative where a program ran for the first time. True: plan."""
        ...

    def propose(self, proposals: Sequence[Proposal], reason: str, took_s: float) -> None:
        """Settings to try, the most promising first."""
        ...

    def restore(self, setting: Setting) -> None:
        """Continue with the setting of a checkpoint."""
        ...


@dataclass
class _Trial:
    proposal: Proposal
    current_ms: list[float] = field(default_factory=list)
    tried_ms: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    """log(tried / current) by pair."""
    has_begun: bool = False


class Tuner:
    """See the module's picture."""

    def __init__(
        self, start: Setting, limits: TunerLimits | None = None, reason: str = "the strategy's"
    ) -> None:
        self.setting, self.limits = start, limits or TunerLimits()
        self.decisions: list[Decision] = []
        self.step = 0
        """Completed steps of finished blocks."""
        self.spent_s = self.elapsed_s = 0.0
        self.reference_ms = 0.0
        """The step time when the setting was last verified; 0: unknown."""
        self._block: list[TunerStep] = []
        self._has_warmed_up = self._wants_plan = False
        self._changed: list[float] = []
        """Medians of the last blocks, if they differ from the reference."""
        self._queue: list[Proposal] = []
        self._trial: _Trial | None = None
        self._failures = 0
        self._first_run_s, self._plan_s = 1.0, _PLAN_S
        self._decide("start", reason)

    @property
    def wants_samples(self) -> bool:
        """In the warm-up, and as soon as a change is suspected."""
        return not self._has_warmed_up or bool(self._changed)

    @property
    def is_settled(self) -> bool:
        """True: nothing is left to try."""
        return self._has_warmed_up and not (self._wants_plan or self._queue or self._trial)

    # --- blocks -------------------------------------------------------------------------------------------

    def next_block(self) -> list[TunerStep]:
        """The settings of the next steps."""
        if self._trial is None and self._queue and self._has_budget(self._first_run_s):
            self._trial = _Trial(self._queue.pop(0))
        if not self._has_warmed_up:
            self._block = [TunerStep(self.setting)] * (WARM_UP * self.limits.run)
        elif self._trial is not None:
            self._block = self._trial_block(self._trial)
        else:
            self._block = [TunerStep(self.setting)] * self.limits.monitor_steps
        return self._block

    def _trial_block(self, trial: _Trial) -> list[TunerStep]:
        block = [] if trial.has_begun else [TunerStep(trial.proposal.setting)] * _TRIAL_WARM_UP
        run, skipped = max(trial.proposal.run, self.limits.run), trial.proposal.skipped
        first = len(trial.ratios)
        for pair in range(first, first + max(1, next_look(first))):
            order = (self.setting, trial.proposal.setting)
            for setting in reversed(order) if is_reversed(pair) else order:
                block += [TunerStep(setting)] * skipped + [TunerStep(setting, pair)] * (run - skipped)
        trial.has_begun = True
        return block

    def finish(self, times: Sequence[float], elapsed_s: float, overhead_s: float) -> bool:
        """The block is done: milliseconds of its steps, the same on all ranks. True: plan now.

        The time of a step is negative if its program ran for the first time on a rank, and was compiled.
        """
        self.step += len(self._block)
        self.elapsed_s = elapsed_s
        self.spent_s += overhead_s
        if not self._has_warmed_up:
            self._finish_warm_up(times)
        elif self._trial is not None:
            self._finish_trial(self._trial, times)
        else:
            self._finish_monitoring(times)
        return self._wants_plan and self._trial is None and self._has_budget(self._plan_s)

    def _finish_warm_up(self, times: Sequence[float]) -> None:
        self._has_warmed_up = self._wants_plan = True
        run = self.limits.run
        self.reference_ms = self._center(times[WARM_UP_SKIPPED * run : -SAMPLED * run])
        self._first_run_s = max(0.0, abs(times[0]) - self.reference_ms) / 1e3

    def _finish_monitoring(self, times: Sequence[float]) -> None:
        usable = [ms for ms in times if ms > 0]
        if len(usable) < len(times) // 2:
            return
        level = self._center(usable)
        if not self.reference_ms:
            self.reference_ms = level
            return
        noise = 4 * 1.4826 * _median([abs(ms - level) for ms in usable]) / math.sqrt(len(usable))
        difference = level - self.reference_ms
        if abs(difference) <= max(_CHANGE * self.reference_ms, noise):
            self._changed = []
            return
        if self._changed and (self._changed[-1] > self.reference_ms) != (difference > 0):
            self._changed = []
        self._changed.append(level)
        if len(self._changed) >= 2:
            self._change(self.reference_ms, level)
            self.reference_ms = level

    def _change(self, before: float, level: float) -> None:
        """What was planned no longer holds."""
        self._changed, self._queue, self._wants_plan = [], [], True
        reason = f"steps take {level:.2f} ms, and {before:.2f} ms when the setting was verified"
        self._decide("change", reason, measured_ms=level, against_ms=before)

    # --- trials -------------------------------------------------------------------------------------------

    def propose(self, proposals: Sequence[Proposal], reason: str, took_s: float) -> None:
        """Settings to try, the most promising first; `took_s`: what planning has cost."""
        self.spent_s += took_s
        self._plan_s = took_s
        self._wants_plan, self._failures = False, 0
        self._queue = [p for p in proposals if p.setting != self.setting][: self.limits.samples]
        self._decide("plan", reason)

    def _finish_trial(self, trial: _Trial, times: Sequence[float]) -> None:
        self._collect(trial, times)
        verdict = compare(trial.ratios, self.limits.min_gain, self.limits.max_pairs)
        if verdict.outcome == "undecided":
            return
        self._trial = None
        before, current, tried = self.reference_ms, _median(trial.current_ms), _median(trial.tried_ms)
        if verdict.outcome == "faster":
            self.setting, self.reference_ms, self._failures = trial.proposal.setting, tried, 0
            self._decide_on(trial, verdict, "switch", tried, current)
        else:
            self.reference_ms = current or before
            self._failures += 1
            self._decide_on(trial, verdict, "keep", tried, current)
            if self._failures >= _FAILURES:
                self._queue = []
        if verdict.pairs >= _MANY and abs(current - before) > _CHANGE_IN_TRIAL * before > 0:
            self._change(before, current)

    def _collect(self, trial: _Trial, times: Sequence[float]) -> None:
        by_pair: dict[int, tuple[list[float], list[float]]] = {}
        usual = _median([ms for s, ms in zip(self._block, times, strict=True) if s.setting == self.setting])
        usual = usual or self.reference_ms
        cost = 0.0
        for step, ms in zip(self._block, times, strict=True):
            is_tried = step.setting == trial.proposal.setting
            if is_tried or step.pair < 0:
                cost += abs(ms) - usual  # a faster setting earns what it saves
            if step.pair >= 0:
                by_pair.setdefault(step.pair, ([], []))[is_tried].append(ms)
        self.spent_s += max(0.0, cost) / 1e3
        if times[0] < 0 and self._block[0].setting == trial.proposal.setting:
            self._first_run_s = max(self._first_run_s / 2, (-times[0] - usual) / 1e3)
        for current, tried in (by_pair[pair] for pair in sorted(by_pair)):
            a, b = self._center(current), self._center(tried)
            trial.current_ms.append(a)
            trial.tried_ms.append(b)
            trial.ratios.append(math.log(b / a) if a > 0 and b > 0 else math.nan)

    def _center(self, times: Sequence[float]) -> float:
        """A typical step; the mean if every k-th step takes longer."""
        return _mean(times) if self.limits.run > 1 else _median(times)

    def _has_budget(self, needed_s: float) -> bool:
        return self.spent_s + needed_s <= self.limits.budget * self.elapsed_s

    # --- decisions ----------------------------------------------------------------------------------------

    def restore(self, setting: Setting) -> None:
        """Continue with the setting of a checkpoint."""
        self.setting, self.reference_ms, self._trial, self._block = setting, 0.0, None, []
        self._decide("restore", "of the checkpoint")

    def _decide_on(
        self,
        trial: _Trial,
        verdict: TrialVerdict,
        kind: Literal["switch", "keep"],
        tried: float,
        current: float,
    ) -> None:
        self._decide(
            kind,
            verdict.reason,
            tried=trial.proposal.setting,
            predicted_ms=trial.proposal.predicted_ms,
            measured_ms=tried,
            against_ms=current,
            gain=verdict.gain,
            low=verdict.low if math.isfinite(verdict.low) else None,
            high=verdict.high if math.isfinite(verdict.high) else None,
            pairs=verdict.pairs,
        )

    def _decide(
        self,
        kind: Literal["start", "plan", "switch", "keep", "change", "restore"],
        reason: str,
        tried: Setting | None = None,
        predicted_ms: float | None = None,
        measured_ms: float | None = None,
        against_ms: float | None = None,
        gain: float | None = None,
        low: float | None = None,
        high: float | None = None,
        pairs: int = 0,
    ) -> None:
        figures = (tried, predicted_ms, measured_ms, against_ms, gain, low, high, pairs)
        self.decisions.append(
            Decision(self.step, kind, self.setting, reason, *figures, self.spent_s, self.elapsed_s)
        )


def _median(values: Sequence[float]) -> float:
    """The median of the positive values; 0 if there is none."""
    positive = [value for value in values if value > 0]
    return median(positive) if positive else 0.0


def _mean(values: Sequence[float]) -> float:
    """The mean; 0 if a value is not positive."""
    return float(np.mean(values)) if values and min(values) > 0 else 0.0

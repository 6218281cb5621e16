"""The tuner on synthetic jobs: it finds gains within its budget, and tunes again after a change."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from argosy.distributed.auto.proposals import allowed_settings, by_family, sum_order
from argosy.distributed.auto.setting import Setting
from argosy.distributed.auto.tuner import WARM_UP, Proposal, Tuner, TunerLimits

GIVEN = Setting()
OVERLAP = Setting(overlap=True)
SMALL = Setting(overlap=True, bucket_mb=4)
StepMs = Callable[[Setting, int], float]


class SyntheticJob:
    """Steps with given times and noise; compiling a setting costs 0.8 s."""

    def __init__(
        self, step_ms: StepMs, tuner: Tuner, seed: int = 0, predicted: tuple[Setting, ...] = ()
    ) -> None:
        self.step_ms, self.tuner, self.rng = step_ms, tuner, np.random.default_rng(seed)
        self.predicted = predicted or (OVERLAP, SMALL)
        self.compiled: set[Setting] = set()
        self.active: list[Setting] = []
        self.total_ms = 0.0
        self.plans = 0

    def run(self, steps: int) -> "SyntheticJob":
        while len(self.active) < steps:
            times = [self._step(step.setting) for step in self.tuner.next_block()]
            self.total_ms += sum(map(abs, times))
            if self.tuner.finish(times, self.total_ms / 1e3, overhead_s=0.001):
                self.plans += 1
                proposals = [Proposal(s, self.step_ms(s, len(self.active))) for s in self.predicted]
                self.tuner.propose(proposals, "synthetic", took_s=0.1)
        return self

    def _step(self, setting: Setting) -> float:
        ms = self.step_ms(setting, len(self.active)) * np.exp(0.03 * self.rng.standard_normal())
        ms *= 1.0 + self.rng.exponential(0.5) if self.rng.random() < 0.05 else 1.0
        self.active.append(setting)
        if setting not in self.compiled:
            self.compiled.add(setting)
            return -(ms + 800.0)
        return float(ms)


def constant(**by_name: float) -> StepMs:
    known = {GIVEN: by_name["given"], OVERLAP: by_name["overlap"], SMALL: by_name["small"]}
    return lambda setting, step: known[setting]


@pytest.mark.parametrize("seed", range(50))
def test_the_job_is_never_more_than_two_percent_slower_than_with_the_defaults(seed: int) -> None:
    job = SyntheticJob(constant(given=300.0, overlap=303.0, small=330.0), Tuner(GIVEN), seed).run(1000)
    defaults = SyntheticJob(constant(given=300.0, overlap=300.0, small=300.0), Tuner(GIVEN), seed, (GIVEN,))
    settled = [job.step_ms(setting, 0) for setting in job.active]
    assert np.mean(settled) <= 1.02 * 300.0
    assert job.tuner.spent_s <= 0.025 * job.tuner.elapsed_s
    assert defaults.run(1000).tuner.setting == GIVEN


@pytest.mark.parametrize("seed", range(10))
def test_a_gain_is_found_and_kept(seed: int) -> None:
    job = SyntheticJob(constant(given=300.0, overlap=285.0, small=270.0), Tuner(GIVEN), seed).run(1000)
    assert job.tuner.setting == SMALL
    assert job.active[-1] == SMALL
    kinds = [decision.kind for decision in job.tuner.decisions]
    assert kinds.count("switch") >= 1
    assert job.tuner.spent_s <= 0.025 * job.tuner.elapsed_s


def test_nothing_is_tried_before_the_budget_allows_it() -> None:
    job = SyntheticJob(constant(given=10.0, overlap=5.0, small=5.0), Tuner(GIVEN)).run(1000)
    assert set(job.active[: WARM_UP + 500]) == {GIVEN}, "compiling costs 0.8 s, and 2 % of 5 s are 0.1 s"
    assert job.tuner.spent_s <= 0.02 * job.tuner.elapsed_s


def test_it_tunes_again_within_100_steps_of_a_change() -> None:
    changed_at = 1000

    def step_ms(setting: Setting, step: int) -> float:
        if step < changed_at:
            return {GIVEN: 300.0, OVERLAP: 280.0, SMALL: 285.0}[setting]
        return {GIVEN: 900.0, OVERLAP: 700.0, SMALL: 560.0}[setting]

    for seed in range(10):
        job = SyntheticJob(step_ms, Tuner(GIVEN), seed).run(changed_at)
        assert job.tuner.setting == OVERLAP
        plans = job.plans
        job.run(changed_at + 200)
        assert job.plans == plans + 1
        assert job.tuner.setting == SMALL
        switched = max(i for i, setting in enumerate(job.active) if setting != SMALL) + 1
        assert switched - changed_at <= 100, switched
        assert [d.kind for d in job.tuner.decisions].count("change") == 1


def test_a_faster_link_is_a_change_too_and_noise_is_none() -> None:
    faster = SyntheticJob(lambda s, step: 300.0 if step < 500 else 200.0, Tuner(GIVEN)).run(700)
    assert [d.kind for d in faster.tuner.decisions].count("change") == 1
    noisy = SyntheticJob(lambda s, step: 300.0, Tuner(GIVEN)).run(2000)
    assert "change" not in [d.kind for d in noisy.tuner.decisions]


def test_at_most_so_many_settings_are_verified() -> None:
    many = tuple(Setting(bucket_mb=size, overlap=True) for size in range(1, 30))
    better = {setting: 300.0 - 8.0 * i for i, setting in enumerate(many)} | {GIVEN: 310.0}
    tuner = Tuner(GIVEN, TunerLimits(budget=10.0, samples=8))
    SyntheticJob(lambda s, step: better[s], tuner, predicted=many).run(2000)
    assert len([d for d in tuner.decisions if d.kind in ("switch", "keep")]) == 8
    worse = Tuner(GIVEN, TunerLimits(budget=10.0, samples=8))
    SyntheticJob(lambda s, step: 310.0 if s == GIVEN else 330.0, worse, predicted=many).run(2000)
    assert len([d for d in worse.decisions if d.kind == "keep"]) == 3, (
        "three failures in a row end the trials"
    )


def test_a_restored_setting_is_used_at_once() -> None:
    tuner = Tuner(GIVEN)
    tuner.next_block()
    tuner.restore(OVERLAP)
    assert {step.setting for step in tuner.next_block()} == {OVERLAP}


def test_merged_gradients_are_compared_over_whole_periods() -> None:
    tuner = Tuner(GIVEN, TunerLimits(budget=10.0, run=4))
    job = SyntheticJob(lambda s, step: (400.0 if s == GIVEN else 300.0) if step % 4 == 3 else 100.0, tuner)
    job.run(400)
    assert tuner.setting in (OVERLAP, SMALL)


# --- what may be tried ------------------------------------------------------------------------------------


def test_settings_with_one_order_of_sums() -> None:
    leaders, shares = Setting(hierarchical="leaders"), Setting(hierarchical="reduce_scatter", bucket_mb=4)
    assert sum_order(leaders, 4, 2) == sum_order(shares, 4, 2), "two hosts have one order"
    assert sum_order(GIVEN, 4, 2) != sum_order(replace(GIVEN, bucket_mb=4), 4, 2)
    assert sum_order(GIVEN, 4, 2) == sum_order(replace(OVERLAP, communicators=2), 4, 2)
    assert sum_order(GIVEN, 4, 1) == sum_order(SMALL, 4, 1), "shared memory adds in the order of the ranks"
    assert sum_order(GIVEN, 2, 2) == sum_order(SMALL, 2, 2)
    assert sum_order(GIVEN, 2, 1) != sum_order(replace(GIVEN, wire_dtype="bfloat16"), 2, 1)


def test_what_changes_numerics_or_state_is_not_allowed_by_default() -> None:
    settings = allowed_settings(GIVEN, 4, 2)
    assert settings[0] == GIVEN
    assert not any(s.wire_dtype or s.sharding for s in settings)
    assert any(s.hierarchical for s in settings)
    equal = allowed_settings(GIVEN, 4, 2, bit_equal=True)
    assert {(s.bucket_mb, s.hierarchical) for s in equal} == {(32, "")}
    assert any(s.wire_dtype for s in allowed_settings(GIVEN, 4, 2, changes_numerics=True))
    assert allowed_settings(replace(GIVEN, sharding=True), 4, 2) == [replace(GIVEN, sharding=True)]


def test_the_best_of_each_family_comes_first() -> None:
    ranked = [
        Proposal(Setting(bucket_mb=mb, overlap=o), ms)
        for ms, mb, o in ((1.0, 4, True), (1.0005, 8, True), (1.1, 16, True), (1.2, 32, False))
    ]
    assert [p.predicted_ms for p in by_family(ranked)] == [1.0, 1.2, 1.1]

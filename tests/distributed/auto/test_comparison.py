"""The sequential test: it adopts what is faster, and nothing that is slower, on noisy synthetic steps."""

# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest

from argosy.distributed.auto.comparison import (
    MAX_PAIRS,
    TrialVerdict,
    compare,
    interval,
    is_reversed,
    next_look,
)


def noisy_steps(rng: np.random.Generator, mean_ms: float, count: int) -> np.ndarray:
    """Steps with a spread of 3 %, of which every twentieth is much slower, as on a shared machine."""
    steps = mean_ms * np.exp(0.03 * rng.standard_normal(count))
    return steps * np.where(rng.random(count) < 0.05, 1.0 + rng.exponential(0.5, count), 1.0)


def verdict_on(seed: int, tried_ms: float) -> TrialVerdict:
    rng = np.random.default_rng(seed)
    ratios: list[float] = []
    while True:
        count = next_look(len(ratios))
        drift = 1.0 + 0.1 * math.sin(len(ratios) / 9)
        pairs = zip(
            noisy_steps(rng, tried_ms * drift, count), noisy_steps(rng, 100.0 * drift, count), strict=True
        )
        ratios += [math.log(tried / current) for tried, current in pairs]
        verdict = compare(ratios)
        if verdict.outcome != "undecided":
            return verdict


@pytest.mark.parametrize("tried_ms", [100.0, 102.0, 105.0, 130.0])
def test_what_is_not_faster_is_hardly_ever_adopted(tried_ms: float) -> None:
    outcomes = [verdict_on(seed, tried_ms).outcome for seed in range(50)]
    assert outcomes.count("faster") <= (1 if tried_ms == 100.0 else 0)


def test_a_gain_of_five_percent_is_found() -> None:
    verdicts = [verdict_on(seed, 95.0) for seed in range(50)]
    faster = [v for v in verdicts if v.outcome == "faster"]
    assert len(faster) >= 45
    assert abs(np.median([v.gain for v in faster]) - 0.05) < 0.01


def test_large_differences_need_few_pairs() -> None:
    assert np.median([verdict_on(seed, 150.0).pairs for seed in range(20)]) <= 10
    assert np.median([verdict_on(seed, 60.0).pairs for seed in range(20)]) <= 10


def test_a_gain_below_the_least_is_shown_to_be_so_or_ends_at_the_most_pairs() -> None:
    for seed in range(10):
        verdict = verdict_on(seed, 99.8)
        assert verdict.outcome == "not faster" or verdict.gain >= 0.01
        assert verdict.pairs <= MAX_PAIRS


def test_the_interval_ignores_outliers_and_has_no_ends_for_few_values() -> None:
    low, middle, high = interval([0.1] * 19 + [50.0])
    assert low == pytest.approx(0.1)
    assert middle == pytest.approx(0.1)
    assert high < 1.0
    assert interval([1.0] * 5) == (-math.inf, 1.0, math.inf)
    assert interval([]) == (-math.inf, 0.0, math.inf)


def test_unusable_pairs_are_left_out_and_still_end_the_test() -> None:
    verdict = compare([math.nan] * MAX_PAIRS)
    assert (verdict.outcome, verdict.pairs) == ("not faster", 0)


def test_the_order_of_pairs_has_no_short_period() -> None:
    order = [is_reversed(pair) for pair in range(32)]
    assert sum(order) == 16
    for period in range(1, 9):
        assert order[period:] != order[:-period]

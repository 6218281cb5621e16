"""Compare two settings by interleaved steps: a sequential test on paired ratios.

    steps     A B   B A   B A   A B   …          the order of the pairs is aperiodic, so that no period of the
    ratios    log(B/A) of each pair              input or of the machine coincides with it

After 12 pairs, and then after every 7, the interval of the median ratio is computed from the Walsh averages (the
signed-rank test of Wilcoxon), which neither a slow step nor a drift of the machine moves much. The test ends when the
interval is below zero (faster), or above the least gain that is of interest, or after so many pairs.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Outcome = Literal["faster", "not faster", "undecided"]
MIN_GAIN = 0.01
FIRST_LOOK, LOOK_EVERY, MAX_PAIRS = 12, 7, 40
_Z = 3.0
"""Of the normal distribution: an interval of 99.7 % at each look."""
_FEW = 4
_MUCH_SLOWER, _MUCH_FASTER = math.log(1.1), math.log(0.85)
"""If this few pairs are all beyond these, there is no need for more."""


@dataclass(frozen=True)
class TrialVerdict:
    """What the pairs say so far. Gains are parts of the time of A: 0.05 is 5 % faster."""

    outcome: Outcome
    pairs: int
    gain: float
    low: float
    high: float
    reason: str


def is_reversed(pair: int) -> bool:
    """True: of this pair B runs first. The Thue-Morse sequence, balanced and without a period."""
    return bool(pair.bit_count() & 1)


def next_look(pairs: int) -> int:
    """How many pairs to run before the next look."""
    if pairs < _FEW:
        return _FEW - pairs
    if pairs < FIRST_LOOK:
        return FIRST_LOOK - pairs
    return min(LOOK_EVERY, MAX_PAIRS - pairs)


def compare(ratios: Sequence[float], min_gain: float = MIN_GAIN, max_pairs: int = MAX_PAIRS) -> TrialVerdict:
    """The verdict on log(B/A) of each pair; ratios that are not finite are left out."""
    known = [ratio for ratio in ratios if math.isfinite(ratio)]
    low, middle, high = interval(known)
    gain, worst, best = -math.expm1(middle), -math.expm1(high), -math.expm1(low)

    def verdict(outcome: Outcome, reason: str) -> TrialVerdict:
        return TrialVerdict(outcome, len(known), gain, worst, best, reason)

    if len(known) >= _FEW and min(known) > _MUCH_SLOWER:
        return verdict("not faster", "every pair is more than 10 % slower")
    if len(known) >= _FEW and max(known) < _MUCH_FASTER:
        return verdict("faster", "every pair is more than 15 % faster")
    if high < 0.0 and gain >= min_gain:
        return verdict("faster", "the difference is sure")
    if low > math.log1p(-min_gain):
        return verdict("not faster", f"the gain is surely below {min_gain:.0%}")
    if len(ratios) >= max_pairs:
        return verdict("not faster", f"no sure difference in {len(ratios)} pairs")
    return verdict("undecided", "")


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The pseudo-median, between the ends of its interval; the ends are infinite for fewer than 12 values."""
    n = len(values)
    if n == 0:
        return -math.inf, 0.0, math.inf
    array = np.asarray(values, dtype=np.float64)
    first, second = np.triu_indices(n)
    walsh = np.sort((array[first] + array[second]) / 2)
    middle = float(np.median(walsh))
    spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    place = math.floor(len(walsh) / 2 - _Z * spread)
    if place < 0:
        return -math.inf, middle, math.inf
    return float(walsh[place]), middle, float(walsh[-1 - place])

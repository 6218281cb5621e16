"""How long a slowdown must last: by the slowdowns that passed."""

# SPDX-License-Identifier: Apache-2.0
import random
from collections import deque

from argosy.engine.metrics.transients import MAX_PATIENCE, Slowdown, Transients


def passed(excess: list[float]) -> list[tuple[int, float]]:
    slowdown, seen = Slowdown(), deque[float](maxlen=256)
    events = []
    for value in excess:
        seen.append(value)
        if (ended := slowdown.update(seen)) is not None:
            events.append(ended)
    return events


def test_a_slowdown_has_its_length_and_its_excess() -> None:
    assert passed([0.0] * 20 + [0.5] * 30 + [0.0] * 20) == [(30, 0.5)]


def test_a_pause_of_a_few_slots_is_no_slowdown() -> None:
    assert passed(([0.0] * 20 + [3.0] * 3) * 5) == []


def test_a_slowdown_that_lasts_has_not_passed() -> None:
    assert passed([0.0] * 20 + [0.1, 0.12, 0.09, 0.0] * 60) == []


def test_without_slowdowns_14_slots_suffice() -> None:
    assert Transients().patience(0.1) == 14


def test_slowdowns_that_passed_lengthen_it() -> None:
    transients = Transients()
    lengths = []
    for _ in range(60):
        transients.add(10, 0.5)
        lengths.append(transients.patience(0.5))
    assert 40 < lengths[0] < 80
    assert 85 < lengths[-1] < 105
    assert transients.patience(1.2) == 14, "larger ones than those that passed"
    assert transients.patience(0.1) == 14, "much smaller ones"


def test_it_is_bounded() -> None:
    transients = Transients()
    for _ in range(10):
        transients.add(200, 0.5)
    assert transients.patience(0.5) == MAX_PATIENCE


def test_exponential_slowdowns_seldom_last_longer() -> None:
    chance, alarms = random.Random(0), 0
    for _ in range(100):
        transients = Transients()
        for _ in range(60):
            length = 1 + int(chance.expovariate(1 / 8))
            alarms += bool(transients._passed) and length >= transients.patience(0.5)
            transients.add(length, 0.5)
    assert alarms <= 5  # of 6,000: the first lengths of a job say little about the mean

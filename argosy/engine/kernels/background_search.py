"""Search for faster kernels in the background of training, for the processes that start later.

    step 1      the rule's kernel runs; the key is noted
    step 2      the budget allows nothing yet
    step 3      conv2d, 8x64x56x56, …:    one run of each alternative       to warm up
    step 4                                one run of each alternative       round 1; the slow ones are dropped
    step 5                                one run of each that is left      round 2; ends if the rule's is the fastest
    …                                     at most 5 rounds
                                          the best is stored in the file; this process stays with the rule's

A round runs on the step's own tensors, and is skipped while the search has used its share of the elapsed time. Few keys
are measured at a time, so that a short training finishes some of them. The choices of the running process do not
change: what it computes does not depend on the clock.
"""

# SPDX-License-Identifier: Apache-2.0
import math
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

SHARE = 0.05
"""Of the elapsed time."""
_MAX_PAUSE_S = 1.0
"""A pause between two calls counts at most this long: idle hours of a notebook must not fill the budget."""
_ROUNDS = 5
_MAX_SLOWDOWNS = (1.5, 1.3, 1.2)
"""An alternative that is this many times slower than the best after one, two, three rounds is not measured again."""
_MIN_ROUNDS = 2
_MAX_OPEN = 3
"""So many keys are measured at a time."""
_STALE_S = 20.0
"""A key that was not visited for so long does not count as one of them: its shape may never come again."""
Alternatives = Mapping[str, Callable[..., Any]]
Times = dict[str, float]
"""The best time of each alternative, in seconds."""


@dataclass
class Trial:
    """The measurements of one key so far."""

    default: str
    """The rule's alternative."""
    best: Times = field(default_factory=dict)
    rounds: int = -1
    """Counted ones; -1 before the first, which warms up."""
    last_s: float = -math.inf
    """When it was last measured, in elapsed time."""

    def run_round(self, alternatives: Alternatives, arguments: tuple[Any, ...]) -> None:
        """Run each alternative once. Rounds alternate in order: the second one finds its input in the caches."""
        names = [n for n in alternatives if not self._is_dropped(n)]
        for name in names if self.rounds % 2 else reversed(names):
            began = time.perf_counter()
            alternatives[name](*arguments)
            elapsed = time.perf_counter() - began
            if self.rounds >= 0:
                self.best[name] = min(self.best.get(name, math.inf), elapsed)
        self.rounds += 1

    def is_finished(self, alternatives: Alternatives) -> bool:
        """True if one alternative is left, or the rule's is the fastest, or all have been measured often enough."""
        if self.rounds < _MIN_ROUNDS:
            return False
        is_rule_best = self.best[self.default] <= min(self.best.values())
        is_one_left = sum(not self._is_dropped(n) for n in alternatives) == 1
        return is_rule_best or is_one_left or self.rounds >= _ROUNDS

    def _is_dropped(self, name: str) -> bool:
        if self.rounds < 1:
            return False
        slowdown = _MAX_SLOWDOWNS[min(self.rounds, len(_MAX_SLOWDOWNS)) - 1]
        return self.best[name] > slowdown * min(self.best.values())


class BackgroundSearch:
    """The trials of one process, and the time that they used."""

    def __init__(self, budget_s: float, finished: Callable[[tuple[Hashable, ...], Trial], None]) -> None:
        self.trials: dict[tuple[Hashable, ...], Trial] = {}
        """Of the keys whose best alternative is unknown."""
        self.budget_s = budget_s
        self.spent_s = 0.0
        self.elapsed_s = 0.0
        """Since the first call, without long pauses."""
        self._finished = finished
        self._last = time.perf_counter()
        self._lock = threading.Lock()

    def add(self, key: tuple[Hashable, ...], default: str) -> None:
        """Note a key of which the rule chose the alternative `default`."""
        self.trials[key] = Trial(default)

    def visit(
        self, key: tuple[Hashable, ...], alternatives: Alternatives, arguments: tuple[Any, ...]
    ) -> None:
        """Run one round for a noted key, if there is time left and no other thread is at it."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            began = time.perf_counter()
            self.elapsed_s += min(began - self._last, _MAX_PAUSE_S)
            self._last = began
            trial = self.trials.get(key)
            if trial is None or self.spent_s >= min(SHARE * self.elapsed_s, self.budget_s):
                return
            if trial.last_s < 0 and self._num_open() >= _MAX_OPEN:
                return
            trial.last_s = self.elapsed_s
            trial.run_round(alternatives, arguments)
            if trial.is_finished(alternatives):
                del self.trials[key]
                self._finished(key, trial)
            self._last = time.perf_counter()
            self.spent_s += self._last - began
        finally:
            self._lock.release()

    def _num_open(self) -> int:
        """How many keys are being measured."""
        return sum(
            trial.last_s > self.elapsed_s - _STALE_S for trial in self.trials.values() if trial.last_s >= 0
        )

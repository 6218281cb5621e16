"""How long a slowdown must last before its rank is a straggler: longer than those of this job that have passed.

Other processes of a host come and go, and slow down one rank, then another. So the lengths of slowdowns that have
passed are noted, over all ranks. If they are exponentially distributed with an unknown mean, a further one lasts for
more than `t` slots with the probability (total / (total + t)) ** count: a straggler's lasts until that is below ALPHA.

    no slowdown has passed yet        14 slots
    one, of 10 slots                  61
    many, of 10 slots in the mean     92
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections import deque
from dataclasses import dataclass, field
from statistics import median

ALPHA, DISTURBED_ALPHA = 1e-4, 1e-6
"""The second one where other processes delay the rank: what has come and gone may well do so again."""
_PRIOR_COUNT, _PRIOR_SLOTS = 4, 1.5
"""What is assumed before anything is known: four slowdowns, of this length together."""
MAX_PATIENCE = 256
_BEGINS = 0.04
"""A slowdown begins when the median of _RECENT slots is above this part of the others' time."""
_ENDS, _ENDS_PART = 0.02, 0.3
"""And ends when it is below this, or below that part of what it was."""
_RECENT = 8
_SIMILAR = (0.5, 4.0)
"""A process that halves the speed of a rank for a moment says little about one that slows it down by a tenth."""


@dataclass
class Slowdown:
    """The present slowdown of a rank, if it has one."""

    slots: int = 0
    """For how many slots it has lasted; 0: there is none."""

    def update(self, excess: deque[float]) -> tuple[int, float] | None:
        """Add a slot, the last of `excess`; returns the length and the excess of a slowdown that has ended with it."""
        if len(excess) < _RECENT:
            return None
        level = median([excess[-i] for i in range(1, _RECENT + 1)])
        if not self.slots:
            if level > _BEGINS:
                self.slots = _RECENT // 2
            return None
        self.slots += 1
        if level >= _ENDS:  # mostly, without a look at the whole
            usual = median(list(excess)[-self.slots :])
            if level >= _ENDS_PART * usual:
                return None
        late = _RECENT // 2 + 1  # the slots until the median shows the end
        slots = max(1, self.slots - late)
        self.slots = 0
        return slots, median(list(excess)[-slots - late :][:slots])


@dataclass
class Transients:
    """Slowdowns that have passed."""

    _passed: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=256))
    """Their lengths and their excesses."""

    def add(self, slots: int, excess: float) -> None:
        """A slowdown has passed."""
        self._passed.append((slots, excess))

    def clear(self) -> None:
        self._passed.clear()

    def patience(self, excess: float, is_disturbed: bool = False) -> int:
        """How many slots a slowdown of this excess must last: those of a similar excess that have passed count.

        `is_disturbed`: other processes delay the rank.
        """
        least, most = _SIMILAR[0] * excess, _SIMILAR[1] * excess
        lengths = [slots for slots, passed in self._passed if least <= passed <= most]
        count, total = _PRIOR_COUNT + len(lengths), _PRIOR_SLOTS + sum(lengths)
        alpha = DISTURBED_ALPHA if is_disturbed and lengths else ALPHA
        return min(MAX_PATIENCE, math.ceil(total * (math.pow(alpha, -1 / count) - 1)))

"""Measure alternatives: they run interleaved on the same arguments, and the best time of each counts."""

# SPDX-License-Identifier: Apache-2.0
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

_ROUNDS = 5
_MIN_TOTAL_S = 0.03
"""A fast kernel is repeated for at least this long: a few runs of microseconds are too noisy."""
_MAX_SLOWDOWN = 2.0
"""An alternative that is this many times slower than the best after the first rounds is not repeated."""

Alternatives = Mapping[str, Callable[..., Any]]


def measured(alternatives: Alternatives, arguments: tuple[Any, ...]) -> dict[str, float]:
    """The best time of each alternative, in seconds."""
    for run in alternatives.values():
        run(*arguments)  # warm up: allocate memory and create kernels before the first round
    best = dict.fromkeys(alternatives, math.inf)
    total = dict.fromkeys(alternatives, 0.0)
    for _ in range(_ROUNDS):
        _round(list(alternatives), alternatives, arguments, best, total)
    while names := [
        n for n in alternatives if total[n] < _MIN_TOTAL_S and best[n] < _MAX_SLOWDOWN * min(best.values())
    ]:
        _round(names, alternatives, arguments, best, total)
    return best


def _round(
    names: list[str],
    alternatives: Alternatives,
    arguments: tuple[Any, ...],
    best: dict[str, float],
    total: dict[str, float],
) -> None:
    for name in names:
        began = time.perf_counter()
        alternatives[name](*arguments)
        elapsed = time.perf_counter() - began
        best[name] = min(best[name], elapsed)
        total[name] += elapsed

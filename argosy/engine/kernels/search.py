"""Measure alternatives against each other: they take turns on the same arguments, and the best time of each counts."""

# SPDX-License-Identifier: Apache-2.0
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

_ROUNDS = 5
_LEAST_S = 0.03
"""A fast kernel runs so long in all: a few runs of some microseconds say nothing."""
_HOPELESS = 2.0
"""What is so many times slower than the best after the first rounds does not run again."""

Alternatives = Mapping[str, Callable[..., Any]]


def measured(alternatives: Alternatives, arguments: tuple[Any, ...]) -> dict[str, float]:
    """The best time of each alternative, in seconds."""
    for run in alternatives.values():
        run(*arguments)  # memory is found and kernels are made now, and not in the first round
    best = dict.fromkeys(alternatives, math.inf)
    spent = dict.fromkeys(alternatives, 0.0)
    for _ in range(_ROUNDS):
        _round(list(alternatives), alternatives, arguments, best, spent)
    while names := [
        n for n in alternatives if spent[n] < _LEAST_S and best[n] < _HOPELESS * min(best.values())
    ]:
        _round(names, alternatives, arguments, best, spent)
    return best


def _round(
    names: list[str],
    alternatives: Alternatives,
    arguments: tuple[Any, ...],
    best: dict[str, float],
    spent: dict[str, float],
) -> None:
    for name in names:
        began = time.perf_counter()
        alternatives[name](*arguments)
        took = time.perf_counter() - began
        best[name] = min(best[name], took)
        spent[name] += took

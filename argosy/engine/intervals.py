"""Time intervals: union, intersection and total length."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable, Sequence

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The union as sorted, disjoint intervals."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def within(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """The parts of the intervals inside the window."""
    clipped = ((max(begin, window[0]), min(end, window[1])) for begin, end in intervals)
    return [(begin, end) for begin, end in clipped if begin < end]


def length(merged: Iterable[Interval]) -> float:
    """The total length of disjoint intervals."""
    return sum(end - begin for begin, end in merged)


def overlap(first: Sequence[Interval], second: Sequence[Interval]) -> float:
    """The length of the intersection; both must be sorted and disjoint."""
    total, i, j = 0.0, 0, 0
    while i < len(first) and j < len(second):
        total += max(0.0, min(first[i][1], second[j][1]) - max(first[i][0], second[j][0]))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return total

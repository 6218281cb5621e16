"""Time intervals: union, and lengths inside a window."""

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


def union_length(merged: Iterable[Interval], window: Interval) -> float:
    """The length of disjoint intervals inside the window."""
    return sum(max(0.0, min(end, window[1]) - max(begin, window[0])) for begin, end in merged)


def overlap_length(first: Sequence[Interval], second: Sequence[Interval], window: Interval) -> float:
    """The length of the intersection of disjoint intervals inside the window."""
    total, i, j = 0.0, 0, 0
    while i < len(first) and j < len(second):
        begin, end = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        total += max(0.0, min(end, window[1]) - max(begin, window[0]))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return total

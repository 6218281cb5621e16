"""Intervals of time: how much a set of them covers, how much of it two sets share."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable, Sequence

Interval = tuple[float, float]


def union(found: Iterable[Interval]) -> list[Interval]:
    """The same time as intervals in order, none of which touch."""
    joined: list[Interval] = []
    for begin, end in sorted(found):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def within(found: Iterable[Interval], window: Interval) -> list[Interval]:
    """The parts of the intervals that lie in the window."""
    cut = ((max(begin, window[0]), min(end, window[1])) for begin, end in found)
    return [(begin, end) for begin, end in cut if begin < end]


def length(joined: Iterable[Interval]) -> float:
    """How much time they cover; none of them overlap."""
    return sum(end - begin for begin, end in joined)


def shared(first: Sequence[Interval], second: Sequence[Interval]) -> float:
    """How much time both cover; each is in order and without overlaps."""
    total, i, j = 0.0, 0, 0
    while i < len(first) and j < len(second):
        total += max(0.0, min(first[i][1], second[j][1]) - max(first[i][0], second[j][0]))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return total

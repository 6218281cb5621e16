"""Intervals: unions and what two sets share, against counting every point."""

# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from argosy.engine.intervals import length, overlap, union, within

sets = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda p: (float(min(p)), float(max(p))))
)


def points(actual: list[tuple[float, float]]) -> set[int]:
    return {i for begin, end in actual for i in range(int(begin), int(end))}


@given(sets, sets, st.tuples(st.integers(0, 15), st.integers(15, 30)))
def test_lengths_are_those_of_the_points(
    a: list[tuple[float, float]], b: list[tuple[float, float]], w: object
) -> None:
    first, second = union(a), union(b)
    assert length(first) == len(points(a))
    assert overlap(first, second) == len(points(a) & points(b))
    assert length(within(first, w)) == len(points(a) & points([w]))

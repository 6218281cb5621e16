"""The checker finds what is wrong with a history, and nothing in one that is right."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from tests.histories.checker import History, Pull, Push, violations


def pull(began: float, ended: float, *values: float) -> Pull:
    return Pull(began, ended, np.array(values, "float32"))


PUSHES = [Push(0, 1.0, 2.0), Push(1, 1.5, 4.0), Push(2, 5.0)]
RIGHT = [
    *(pull(0.0, 1.2, 0, 0, 0), pull(1.6, 3.0, 1, 1, 0), pull(3.1, 3.5, 1, 1, 0)),
    *(pull(2.5, 3.2, 1, 0, 0), pull(6.0, 7.0, 1, 1, 0), pull(8.0, 9.0, 1, 1, 1)),
]


def test_a_history_in_which_pushes_count_once_and_stay_is_right() -> None:
    assert violations(History(PUSHES, RIGHT), 3) == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (pull(3.0, 3.3, 0, 1, 0), "push 0: lost"),
        (pull(3.6, 3.7, 1, 0, 0), "push 1: lost, or seen and then not"),
        (pull(4.5, 4.6, 1, 0, 0), "push 1: lost"),
        (pull(6.0, 7.0, 2, 1, 0), "push 0: applied more than once"),
        (pull(6.0, 7.0, 0.5, 1, 0), "push 0: applied in part"),
        (pull(4.5, 4.9, 1, 1, 1), "push 2: seen before it was sent"),
        (pull(10.0, 11.0, 1, 1, 0), "push 2: lost, or seen and then not"),
    ],
)
def test_what_is_wrong_is_found(wrong: Pull, says: str) -> None:
    errors = violations(History(PUSHES, [*RIGHT, wrong]), 3)
    assert errors
    assert errors[0].startswith(says)

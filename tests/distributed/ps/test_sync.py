"""Synchronous parameter servers do what one process does with the whole batch."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.ranks import ForkServer
from tests.servers import OPTIMIZERS, alone, learnt

SIZES = [(2, 2), (4, 1), (3, 3), (1, 2)]
FAST = ("adam", "schedule")


def assert_equal(actual: list[dict[str, Any]], wanted: dict[str, Any]) -> None:
    for one in actual:
        assert one.keys() == wanted.keys()
        for name, value in wanted.items():
            np.testing.assert_allclose(one[name], value, rtol=1e-6, atol=1e-6, err_msg=name)


def optimizers(size: int) -> list[str]:
    """Each size has another part of the slow ones."""
    return [name for name in OPTIMIZERS if name not in FAST][size :: len(SIZES)]


@pytest.mark.parametrize(
    ("size", "chosen"),
    [
        (0, FAST),
        *(pytest.param(s, optimizers(s), marks=pytest.mark.slow, id=str(s)) for s in range(len(SIZES))),
    ],
)
def test_every_optimizer_ends_where_one_process_ends(
    ranks: ForkServer, size: int, chosen: Sequence[str]
) -> None:
    trainers, servers = SIZES[size]
    cases = [{"optimizer": optimizer, "steps": 6, "trainers": trainers} for optimizer in chosen]
    for case, actual in zip(cases, learnt(ranks, cases, servers), strict=True):
        assert_equal(actual, alone(case))


def test_tables_and_blocks_anywhere_end_where_one_process_ends(ranks: ForkServer) -> None:
    """Tables with optimizers that leave rows without a gradient alone; others are lazy on servers."""
    cases: list[dict[str, Any]] = [
        {"optimizer": "sgd", "steps": 5, "trainers": 2, "table": True},
        {"optimizer": "adagrad", "steps": 5, "trainers": 2, "table": True},
        {"optimizer": "momentum", "steps": 4, "trainers": 2, "config": {"slice_var_up": False}},
        {"optimizer": "momentum", "steps": 4, "trainers": 2, "config": {"split_method": "HashName"}},
    ]
    for case, actual in zip(cases, learnt(ranks, cases, 2), strict=True):
        assert_equal(actual, alone(case))


@pytest.mark.slow
def test_two_runs_are_equal_bit_for_bit(ranks: ForkServer) -> None:
    case = {"optimizer": "adam", "steps": 5, "trainers": 3, "table": True}
    first, second = learnt(ranks, [case, case], 2)
    for name, value in first[0].items():
        assert all((one[name] == value).all() for one in (*first, *second)), name

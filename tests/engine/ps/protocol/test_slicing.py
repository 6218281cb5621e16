"""Cutting variables into blocks and dealing them out."""

# SPDX-License-Identifier: Apache-2.0
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.engine.ps.protocol.slicing import hash_name, round_robin, split_variable

VECTORS = [
    ((2048, 102), 3, [683, 683, 682]),
    ((2048, 102), 2, [1024, 1024]),
    ((512,), 2, [512]),
    ((20000,), 2, [10000, 10000]),
    ((20000,), 3, [10000, 10000]),
    ((1000, 10), 3, [1000]),
    ((64, 3, 7, 7), 2, [64]),
    ((10, 8192), 4, [3, 3, 3, 1]),
    ((3, 8192), 2, [2, 1]),
    ((5, 4096), 4, [3, 2]),
    ((512, 512, 3, 3), 4, [128, 128, 128, 128]),
]


@pytest.mark.parametrize(("shape", "servers", "rows"), VECTORS)
def test_a_variable_is_cut_as_paddle_cuts_it(shape: tuple[int, ...], servers: int, rows: list[int]) -> None:
    assert [block.rows for block in split_variable("w", shape, servers)] == rows


@given(st.lists(st.integers(1, 70), min_size=0, max_size=4), st.integers(1, 9), st.integers(1, 500))
def test_blocks_cover_the_rows_once(shape: list[int], servers: int, least: int) -> None:
    blocks = split_variable("w", shape, servers, least)
    assert sum(block.size for block in blocks) == math.prod(shape)
    ends = [block.first + block.rows for block in blocks]
    assert [block.first for block in blocks] == [0, *ends[:-1]]
    assert 1 <= len(blocks) <= servers


def test_one_block_keeps_the_name_of_its_variable() -> None:
    assert [b.name for b in split_variable("b", (512,), 2)] == ["b"]
    assert [b.name for b in split_variable("w", (20000,), 2)] == ["w.block0", "w.block1"]


def test_round_robin_counts_on_over_variables() -> None:
    blocks = [
        *split_variable("a", (20000,), 2),
        *split_variable("b", (5,), 2),
        *split_variable("c", (20000,), 2),
    ]
    assert [b.server for b in round_robin(blocks, 2)] == [0, 1, 0, 1, 0]


def test_hash_name_gives_every_process_the_same_server() -> None:
    blocks = [*split_variable("fc_0.w_0", (20000,), 2), *split_variable("fc_0.b_0", (5,), 2)]
    assert [b.server for b in hash_name(blocks, 7)] == [2, 0, 3]

"""Names of groups: which ranks they stand for."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.engine.collective.members import communicator, members
from argosy.engine.errors import ConfigError


def test_a_plain_name_stands_for_all_ranks() -> None:
    assert members("dp", 1, 3) == members("dp.1", 2, 3) == members("util", 0, 3) == (0, 1, 2)


def test_blocks_are_of_consecutive_ranks() -> None:
    assert [members("dp/inner2", rank, 6) for rank in range(6)] == [(0, 1)] * 2 + [(2, 3)] * 2 + [(4, 5)] * 2


def test_across_are_the_ranks_at_the_same_place() -> None:
    assert [members("dp.1/across2", rank, 6) for rank in range(3)] == [(0, 2, 4), (1, 3, 5), (0, 2, 4)]


def test_leaders_are_among_themselves_and_the_others_alone() -> None:
    assert [members("dp/leaders3", rank, 6) for rank in range(4)] == [(0, 3), (1,), (2,), (0, 3)]


def test_every_group_is_the_same_for_all_its_members() -> None:
    for name in ("dp/inner4", "dp/across4", "dp/leaders4", "dp"):
        for rank in range(12):
            assert all(
                members(name, other, 12) == members(name, rank, 12) for other in members(name, rank, 12)
            )


def test_the_first_communicator_has_the_name_of_its_group() -> None:
    assert [communicator("dp", number) for number in range(3)] == ["dp", "dp.1", "dp.2"]


@pytest.mark.parametrize("name", ["dp/inner", "dp/inner0", "dp/outer2", "dp/inner2/across2", ""])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is no group; use names such as"):
        members(name, 0, 4)


def test_blocks_must_come_out_even() -> None:
    with pytest.raises(ConfigError, match="6 ranks are no whole blocks of 4; use a divisor of 6"):
        members("dp/inner4", 0, 6)

"""Names of process groups: which ranks are their members."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.engine.collective.group import communicator, members
from argosy.engine.errors import ConfigError


def test_a_plain_name_has_all_ranks() -> None:
    assert members("dp", 1, 3) == members("dp.1", 2, 3) == members("util", 0, 3) == (0, 1, 2)


def test_blocks_are_of_consecutive_ranks() -> None:
    assert [members("dp/intra2", rank, 6) for rank in range(6)] == [(0, 1)] * 2 + [(2, 3)] * 2 + [(4, 5)] * 2


def test_inter_groups_have_the_ranks_at_the_same_position() -> None:
    assert [members("dp.1/inter2", rank, 6) for rank in range(3)] == [(0, 2, 4), (1, 3, 5), (0, 2, 4)]


def test_leaders_form_a_group_and_the_others_are_alone() -> None:
    assert [members("dp/leaders3", rank, 6) for rank in range(4)] == [(0, 3), (1,), (2,), (0, 3)]


def test_every_group_is_the_same_for_all_its_members() -> None:
    for name in ("dp/intra4", "dp/inter4", "dp/leaders4", "dp"):
        for rank in range(12):
            assert all(
                members(name, other, 12) == members(name, rank, 12) for other in members(name, rank, 12)
            )


def test_the_first_communicator_has_the_name_of_its_group() -> None:
    assert [communicator("dp", number) for number in range(3)] == ["dp", "dp.1", "dp.2"]


@pytest.mark.parametrize("name", ["dp/intra", "dp/intra0", "dp/outer2", "dp/intra2/inter2", ""])
def test_an_invalid_name_is_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match="is no process group; use names such as"):
        members(name, 0, 4)


def test_blocks_must_divide_the_ranks() -> None:
    with pytest.raises(ConfigError, match="6 ranks cannot be divided into blocks of 4; use a divisor of 6"):
        members("dp/intra4", 0, 6)

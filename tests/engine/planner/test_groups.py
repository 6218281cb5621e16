"""Process groups of the planner are those of the runtime; classes of ranks."""

# SPDX-License-Identifier: Apache-2.0
import pytest

from argosy.engine.collective.group import distinct_groups
from argosy.engine.errors import ConfigError
from argosy.engine.planner.groups import Placement, groups_of
from argosy.engine.planner.symmetry import classes_of
from argosy.engine.planner.topology import HostKind, Link, Topology
from tests.engine.planner.steps import cluster


@pytest.mark.parametrize(
    "name", ["dp", "dp.1", "dp/intra2", "dp/inter2", "dp.1/intra4", "dp/inter4", "dp/leaders4"]
)
def test_groups_are_those_of_the_runtime(name: str) -> None:
    runtime = [group for group in distinct_groups(name, 8) if len(group) > 1]
    assert [tuple(row) for row in groups_of(name, 8).tolist()] == runtime


def test_invalid_groups_are_rejected() -> None:
    with pytest.raises(ConfigError, match="use a divisor of 6"):
        groups_of("dp/intra4", 6)
    with pytest.raises(ConfigError, match="is no process group"):
        groups_of("dp/outer2", 6)


def test_blocks_that_fit_no_host_are_rejected() -> None:
    placement = Placement(Topology((HostKind("e", 2, ranks=3),), {"e": Link(1)}))
    assert placement.uses_shared_memory("dp/intra3")
    assert not placement.uses_shared_memory("dp/inter3")
    with pytest.raises(ConfigError, match="use blocks that fit"):
        placement.uses_shared_memory("dp/intra2")


def test_equal_ranks_are_one_class() -> None:
    classes = classes_of(Placement(cluster(512, 8)), [0] * 4096, ["dp", "dp/intra8", "dp/inter8"])
    assert [len(ranks) for ranks in classes.ranks] == [4096]


def test_one_slow_rank_sets_its_host_and_its_position_apart() -> None:
    labels = [0] * 32
    labels[13] = 1
    classes = classes_of(Placement(cluster(8, 4)), labels, ["dp", "dp/intra4", "dp/inter4"])
    others_of_host, at_position = {12, 14, 15}, set(range(1, 32, 4)) - {13}
    found = {frozenset(ranks.tolist()) for ranks in classes.ranks}
    everyone = frozenset(range(32)) - others_of_host - at_position - {13}
    assert found == {frozenset({13}), frozenset(others_of_host), frozenset(at_position), everyone}


def test_leaders_are_a_class_of_their_own() -> None:
    classes = classes_of(Placement(cluster(2, 4)), [0] * 8, ["dp/intra4", "dp/leaders4"])
    assert sorted(len(ranks) for ranks in classes.ranks) == [2, 6]

"""Classes of ranks that behave alike, so that one rank of each class is simulated.

Ranks of equal label (trace, speed, kind of host) are in one class unless something differs: the labels of the
ranks on their host, of the hosts on their switch, or of the members of a process group. That is repeated until nothing
changes (the coarsest equitable partition):

    4,096 equal ranks                      1 class
    one slow rank among 512 hosts x 8      it; the others of its host; the ranks at its position; all others
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from argosy.engine.planner.groups import Ints, Placement, groups_of


@dataclass(frozen=True)
class GroupClasses:
    """The process groups of one name, in classes."""

    of_rank_class: dict[int, int]
    """The class of groups that the ranks of a class are members of."""
    rows: list[Ints]
    """By class, the groups in it, as rows of ranks."""
    members: list[tuple[int, ...]]
    """By class of groups, the classes of its members."""


@dataclass(frozen=True)
class Classes:
    """A partition of the ranks, the hosts and the groups of a job."""

    of_rank: Ints
    ranks: list[Ints]
    """By class, its ranks; the first represents it."""
    of_host: Ints
    of_switch: Ints
    groups: dict[str, GroupClasses]

    def host_class(self, rank_class: int, host_of: Ints) -> int:
        return int(self.of_host[host_of[self.ranks[rank_class][0]]])


def classes_of(placement: Placement, labels: Sequence[int], group_names: Iterable[str]) -> Classes:
    """The classes of ranks with these labels in these process groups."""
    rows = {name: groups_of(name, placement.size) for name in dict.fromkeys(group_names)}
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(placement.hosts))}
    host_kind = np.array([kinds[kind] for kind in placement.hosts])
    host_of, switch_of = placement.host_of, placement.switch_of
    color = _numbered(np.stack([np.asarray(labels, np.int64), host_kind[host_of]], axis=1))
    while True:
        hosts = _numbered_sets(color, host_of, host_kind)
        switches = _numbered_sets(hosts, switch_of, np.zeros(switch_of[-1] + 1, np.int64))
        columns = [color, hosts[host_of], switches[switch_of[host_of]]]
        columns += [_group_colors(color, members) for members in rows.values()]
        refined = _numbered(np.stack(columns, axis=1))
        if refined.max() == color.max():
            break
        color = refined
    ranks = [np.flatnonzero(color == number) for number in range(int(color.max()) + 1)]
    groups = {name: _group_classes(color, members) for name, members in rows.items()}
    return Classes(color, ranks, hosts, switches, groups)


def _numbered(rows: Ints) -> Ints:
    """Equal rows get equal numbers, in the order of their first occurrence."""
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    return order[inverse.reshape(-1)].astype(np.int64)


def _numbered_sets(color: Ints, owner: Ints, kind: Ints) -> Ints:
    """By owner, a number for its kind and the colors of what it has, in any order."""
    num_owners = len(kind)
    counts = np.bincount(owner, minlength=num_owners)
    width = int(counts.max())
    table = np.full((num_owners, width + 1), -1, np.int64)
    order = np.lexsort((color, owner))
    places = np.arange(len(color)) - np.repeat(np.cumsum(counts) - counts, counts)
    table[owner[order], places] = color[order]
    table[:, width] = kind
    return _numbered(table)


def _group_colors(color: Ints, rows: Ints) -> Ints:
    """By rank, a number for the colors of its group's members; -1 if it is in no group."""
    of_group = _numbered(np.sort(color[rows], axis=1))
    colors = np.full(len(color), -1, np.int64)
    colors[rows] = of_group[:, None]
    return colors


def _group_classes(color: Ints, rows: Ints) -> GroupClasses:
    numbers = _numbered(np.sort(color[rows], axis=1))
    by_class = [rows[numbers == number] for number in range(int(numbers.max()) + 1)]
    members = [tuple(int(c) for c in np.unique(color[groups[0]])) for groups in by_class]
    of_rank_class = {rank_class: number for number, inside in enumerate(members) for rank_class in inside}
    return GroupClasses(of_rank_class, by_class, members)

"""Where ranks are, and which of them are the members of a process group.

    dp, dp.1       all ranks; a second communicator           one group
    dp/intra2      the ranks of a block of two                (0 1) (2 3)
    dp/inter2      the ranks at one position in every block   (0 2) (1 3)
    dp/leaders2    the first ranks of every block             (0 2)

The same groups as in collective/group.py, which needs torch; a test compares them.
"""

# SPDX-License-Identifier: Apache-2.0
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from argosy.engine.errors import ConfigError
from argosy.engine.planner.topology import HostKind, Topology

Ints = npt.NDArray[np.int64]
_GROUP_NAME = re.compile(r"([^/]+)(?:/(intra|inter|leaders)([1-9]\d*))?")


def groups_of(name: str, size: int) -> Ints:
    """The groups of this name as rows of ranks; ranks that are in none of them are in no row."""
    match = _GROUP_NAME.fullmatch(name)
    if match is None:
        raise ConfigError(
            f"{name!r} is no process group; use names such as dp, dp.1, dp/intra2, dp/inter2, dp/leaders2"
        )
    kind, ranks = match[2], np.arange(size, dtype=np.int64)
    if kind is None:
        return ranks.reshape(1, size)
    block = int(match[3])
    if size % block:
        raise ConfigError(
            f"group {name!r}: {size} ranks cannot be divided into blocks of {block}; use a divisor of {size}"
        )
    blocks = ranks.reshape(size // block, block)
    return blocks if kind == "intra" else blocks.T if kind == "inter" else blocks.T[:1]


@dataclass(frozen=True)
class Placement:
    """The ranks of a job on the hosts of a topology, host by host."""

    topology: Topology

    @property
    def size(self) -> int:
        return self.topology.num_ranks

    @cached_property
    def hosts(self) -> list[HostKind]:
        return self.topology.expanded()

    @cached_property
    def host_of(self) -> Ints:
        """By rank, the number of its host."""
        return np.repeat(np.arange(len(self.hosts)), [kind.ranks for kind in self.hosts])

    @cached_property
    def switch_of(self) -> Ints:
        """By host, the number of its switch."""
        switch = self.topology.switch
        return np.arange(len(self.hosts)) // (switch.hosts if switch else len(self.hosts))

    def uses_shared_memory(self, group: str) -> bool:
        """True if the ranks of every group of this name are on one host, which shares memory."""
        if self.topology.shared_memory is None:
            return False
        rows = self.host_of[groups_of(group, self.size)]
        on_one: npt.NDArray[Any] = (rows == rows[:, :1]).all(axis=1)
        if on_one.any() and not on_one.all():
            raise ConfigError(
                f"group {group!r}: some of its groups are on one host and others span hosts; use blocks that fit the "
                f"ranks of the hosts ({', '.join(str(kind.ranks) for kind in self.topology.hosts)})"
            )
        return bool(on_one.all())

    def block(self, asked: int) -> int:
        """The number of ranks in a block: as asked, or (0) those of a host."""
        if asked:
            return asked
        ranks = {kind.ranks for kind in self.topology.hosts}
        if len(ranks) > 1:
            raise ConfigError(
                f"blocks of the ranks of a host, but hosts have {', '.join(map(str, sorted(ranks)))} ranks; give the "
                "number of ranks of a block"
            )
        return ranks.pop()

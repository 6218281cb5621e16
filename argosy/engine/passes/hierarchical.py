"""Add gradients up in two stages: inside blocks of ranks, most often those of a host, and between the blocks.

    before    s = all_reduce_fused(b, 0, 128, 'dp')
    after     s = all_reduce_hierarchical(b, 0, 128, 'dp', 4, False)        blocks of four ranks

Between hosts every gradient travels once instead of up to twice. By default each rank of a block takes its share
across; `by_leaders` is Paddle's way, where the first rank of each block takes all of it. collective/hierarchy.py
has the picture. Paddle's names: `use_hierarchical_allreduce`, `hierarchical_allreduce_inter_nranks`.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import ClassVar

from torch import fx

from argosy.engine.ops.all_reduce import all_reduce_fused, all_reduce_hierarchical
from argosy.engine.passes.base import Pass, Report, new_exchanges


@dataclass(frozen=True)
class Hierarchical(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "hierarchical"

    ranks: int
    block: int
    """How many consecutive ranks sum first."""
    by_leaders: bool = False

    def run(self, graph: fx.Graph) -> Report:
        found = new_exchanges(graph, all_reduce_fused)
        for node in found:
            buffer, first, count, group, what = node.args
            node.target = all_reduce_hierarchical
            node.args = (buffer, first, count, group, self.block, self.by_leaders, what)
        way = "their leaders" if self.by_leaders else "each rank with its share"
        text = f"{len(found)} exchanges inside {self.ranks // self.block} blocks of {self.block} ranks, then by {way}"
        return Report(len(found), text if found else "no exchange of a flat buffer")

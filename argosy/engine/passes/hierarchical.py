"""All-reduce gradients hierarchically: inside blocks of ranks (usually a host), then between the blocks.

    before    s = all_reduce_fused(b, 0, 128, 'dp')
    after     s = all_reduce_hierarchical(b, 0, 128, 'dp', 4, False)        blocks of four ranks

Every gradient crosses the inter-host network once instead of up to twice. By default each rank of a block
all-reduces its shard with the other blocks; with `by_leaders`, as in Paddle, the first rank of each block does so for
all of it. collective/hierarchy.py has the picture. Paddle's names: `use_hierarchical_allreduce`,
`hierarchical_allreduce_inter_nranks`.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import ClassVar

from torch import fx

from argosy.engine.ops.collectives import all_reduce_fused, all_reduce_hierarchical
from argosy.engine.passes.base import Pass, Report, new_collectives


@dataclass(frozen=True)
class Hierarchical(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "hierarchical"

    ranks: int
    block: int
    """The number of consecutive ranks in a block."""
    by_leaders: bool = False

    def run(self, graph: fx.Graph) -> Report:
        all_reduces = new_collectives(graph, all_reduce_fused)
        for node in all_reduces:
            buffer, first, count, group, what = node.args
            node.target = all_reduce_hierarchical
            node.args = (buffer, first, count, group, self.block, self.by_leaders, what)
        between = "their leaders" if self.by_leaders else "the ranks of equal shards"
        blocks = f"{self.ranks // self.block} blocks of {self.block} ranks"
        text = f"{len(all_reduces)} all-reduces inside {blocks}, then between {between}"
        return Report(len(all_reduces), text if all_reduces else "no all_reduce_fused")

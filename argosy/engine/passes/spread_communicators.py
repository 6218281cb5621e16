"""Let exchanges take turns on several communicators, so that more than one can be under way.

    before    all_reduce_fused(…, 'dp') … all_reduce_fused(…, 'dp') … all_reduce_fused(…, 'dp')
    after     all_reduce_fused(…, 'dp') … all_reduce_fused(…, 'dp.1') … all_reduce_fused(…, 'dp')

Exchange i uses communicator i % `count`; each has its own connections and its own thread. Paddle's name:
`nccl_comm_num`. It pays between hosts, with sync_nccl_allreduce=False.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import ClassVar, cast

from torch import fx
from torch._ops import OpOverload

from argosy.engine.collective import communicator
from argosy.engine.log import logger
from argosy.engine.ops.all_reduce import all_reduce, all_reduce_fused, all_reduce_hierarchical
from argosy.engine.passes.base import Pass, Report, new_exchanges

# op -> where its arguments name the group
_GROUP = {all_reduce: 1, all_reduce_fused: 3, all_reduce_hierarchical: 3}


@dataclass(frozen=True)
class SpreadCommunicators(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "spread_communicators"

    count: int
    group: str = "dp"

    def run(self, graph: fx.Graph) -> Report:
        found = new_exchanges(graph, *_GROUP)
        changed = 0
        for number, node in enumerate(found):
            where, wanted = (
                _GROUP[cast("OpOverload", node.target)],
                communicator(self.group, number % self.count),
            )
            changed += node.args[where] != wanted
            node.update_arg(where, wanted)
        if found and len(found) < self.count:
            logger.warning(
                "nccl_comm_num=%d, but there are %d exchanges: the rest is not used", self.count, len(found)
            )
        return Report(changed, f"{len(found)} exchanges take turns on {self.count} communicators")

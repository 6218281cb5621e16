"""Assign all-reduces to several communicators round-robin, so that more than one can be in flight.

    before    all_reduce_fused(…, 'dp') … all_reduce_fused(…, 'dp') … all_reduce_fused(…, 'dp')
    after     all_reduce_fused(…, 'dp') … all_reduce_fused(…, 'dp.1') … all_reduce_fused(…, 'dp')

All-reduce i uses communicator i % `count`; each communicator has its own connections and its own thread. Paddle's
name: `nccl_comm_num`. It pays off between hosts, with sync_nccl_allreduce=False.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import ClassVar, cast

from torch import fx
from torch._ops import OpOverload

from argosy.engine.collective import communicator
from argosy.engine.log import logger
from argosy.engine.ops.collectives import all_reduce, all_reduce_fused, all_reduce_hierarchical
from argosy.engine.ops.dgc import dgc_all_reduce
from argosy.engine.passes.base import Pass, Report, new_collectives

# op -> index of the argument that names the process group
_GROUP = {all_reduce: 1, all_reduce_fused: 3, all_reduce_hierarchical: 3, dgc_all_reduce: 5}


@dataclass(frozen=True)
class SpreadCommunicators(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "spread_communicators"

    count: int
    group: str = "dp"

    def run(self, graph: fx.Graph) -> Report:
        collectives = new_collectives(graph, *_GROUP)
        changed = 0
        for number, node in enumerate(collectives):
            index = _GROUP[cast("OpOverload", node.target)]
            name = communicator(self.group, number % self.count)
            changed += node.args[index] != name
            node.update_arg(index, name)
        if collectives and len(collectives) < self.count:
            logger.warning(
                "nccl_comm_num=%d, but there are only %d all-reduces; the other communicators stay unused",
                self.count,
                len(collectives),
            )
        return Report(changed, f"{len(collectives)} all-reduces round-robin over {self.count} communicators")

"""fluid.incubate.fleet.collective: `fleet` for collective training, and its strategy."""

# SPDX-License-Identifier: Apache-2.0
from argosy.fluid.incubate.fleet.collective.checkpoints import TrainStatus
from argosy.fluid.incubate.fleet.collective.collective_fleet import Collective, CollectiveOptimizer, fleet
from argosy.fluid.incubate.fleet.collective.distributed_strategy import DistFCConfig, DistributedStrategy
from argosy.framework.missing import missing

__all__ = [
    "Collective",
    "CollectiveOptimizer",
    "DistFCConfig",
    "DistributedStrategy",
    "TrainStatus",
    "fleet",
]
__getattr__ = missing(__name__, globals())

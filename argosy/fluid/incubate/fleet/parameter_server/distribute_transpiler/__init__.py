"""fluid.incubate.fleet.parameter_server.distribute_transpiler: `fleet` for parameter servers, and its strategies."""

# SPDX-License-Identifier: Apache-2.0
from argosy.fluid.incubate.fleet.parameter_server.distribute_transpiler import distributed_strategy
from argosy.fluid.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import (
    AsyncStrategy,
    DistributedStrategy,
    GeoStrategy,
    HalfAsyncStrategy,
    StrategyFactory,
    SyncStrategy,
    TrainerRuntimeConfig,
)
from argosy.fluid.incubate.fleet.parameter_server.distribute_transpiler.transpiler_fleet import (
    FleetTranspiler,
    ParameterServerOptimizer,
    fleet,
)
from argosy.fluid.transpiler.config import DistributeTranspilerConfig
from argosy.framework.missing import missing

TranspilerOptimizer = ParameterServerOptimizer

__all__ = [
    "AsyncStrategy",
    "DistributeTranspilerConfig",
    "DistributedStrategy",
    "FleetTranspiler",
    "GeoStrategy",
    "HalfAsyncStrategy",
    "ParameterServerOptimizer",
    "StrategyFactory",
    "SyncStrategy",
    "TrainerRuntimeConfig",
    "TranspilerOptimizer",
    "distributed_strategy",
    "fleet",
]
__getattr__ = missing(__name__, globals())

"""pslib, Paddle's closed-source parameter server: any use raises, and says what to use instead."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import unsupported_module

__getattr__ = unsupported_module(
    __name__,
    "use `fleet` and `StrategyFactory` of fluid.incubate.fleet.parameter_server.distribute_transpiler, and "
    "fluid.layers.embedding(is_sparse=True) for tables on the servers",
)

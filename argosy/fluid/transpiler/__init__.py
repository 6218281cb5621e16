"""fluid.transpiler: splits a single-process program into programs for trainers and parameter servers."""

# SPDX-License-Identifier: Apache-2.0
from argosy.fluid.transpiler.config import DistributeTranspilerConfig
from argosy.fluid.transpiler.dispatchers import HashName, PSDispatcher, RoundRobin
from argosy.fluid.transpiler.distribute_transpiler import DistributeTranspiler
from argosy.fluid.transpiler.memory_optimize import memory_optimize, release_memory
from argosy.framework.missing import missing

__all__ = [
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "HashName",
    "PSDispatcher",
    "RoundRobin",
    "memory_optimize",
    "release_memory",
]

__getattr__ = missing(__name__, globals())

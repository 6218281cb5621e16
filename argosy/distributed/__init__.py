"""paddle.distributed: fleet, the datasets, and the rank and world size of this process.

The names are imported on first use, as in `argosy` itself, so that `python -m argosy.distributed.launch` starts
without importing torch.
"""

# SPDX-License-Identifier: Apache-2.0
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argosy.distributed import fleet
    from argosy.distributed.collective import (
        ReduceOp,
        all_gather,
        all_reduce,
        barrier,
        broadcast,
        reduce,
        scatter,
    )
    from argosy.distributed.fleet.dataset import InMemoryDataset, QueueDataset
    from argosy.distributed.parallel import ParallelEnv, get_rank, get_world_size, init_parallel_env

_COLLECTIVES = ("ReduceOp", "all_gather", "all_reduce", "barrier", "broadcast", "reduce", "scatter")
__all__ = [
    "InMemoryDataset",
    "ParallelEnv",
    "QueueDataset",
    "ReduceOp",
    "all_gather",
    "all_reduce",
    "barrier",
    "broadcast",
    "fleet",
    "get_rank",
    "get_world_size",
    "init_parallel_env",
    "reduce",
    "scatter",
]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)  # Python's import machinery looks up optional dunder names
    if name in ("collective", "fleet"):
        return importlib.import_module(f"argosy.distributed.{name}")
    if name in ("InMemoryDataset", "QueueDataset"):
        return getattr(importlib.import_module("argosy.distributed.fleet.dataset"), name)
    if name in _COLLECTIVES:
        return getattr(importlib.import_module("argosy.distributed.collective"), name)
    return getattr(importlib.import_module("argosy.distributed.parallel"), name)


def __dir__() -> list[str]:
    return __all__

"""The rank of this process and the world size, with the names of paddle.distributed."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine import collective
from argosy.engine.collective.identity import Identity, read
from argosy.framework.missing import missing


def get_rank() -> int:
    """This process's rank: 0 without a launcher."""
    return _identity().rank


def get_world_size() -> int:
    """The number of ranks: 1 without a launcher."""
    return _identity().size


def init_parallel_env() -> "ParallelEnv":
    """Rendezvous with the other ranks; `fleet.init` does this too."""
    collective.connect()
    return ParallelEnv()


class ParallelEnv:
    """The rank, world size and endpoints of this process."""

    @property
    def rank(self) -> int:
        """This process's rank."""
        return _identity().rank

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return _identity().size

    @property
    def device_id(self) -> int:
        """The index of this process's device: its rank on this host."""
        return _identity().local_rank

    @property
    def current_endpoint(self) -> str:
        """host:port of this rank, or empty if the launcher gave none."""
        known = _identity().endpoints
        return known[_identity().rank] if known else ""

    @property
    def trainer_endpoints(self) -> list[str]:
        """host:port of every rank, or empty if the launcher gave none."""
        return list(_identity().endpoints)

    local_rank = rank
    nranks = world_size
    dev_id = device_id


def _identity() -> Identity:
    return collective.world().identity if collective.is_connected() else read()


__all__ = ["ParallelEnv", "get_rank", "get_world_size", "init_parallel_env"]
_ALL = ("fleet", "ReduceOp", "all_gather", "all_reduce", "barrier", "broadcast", "reduce", "scatter")
__getattr__ = missing("argosy.distributed", dict.fromkeys((*__all__, *_ALL)))

"""Process groups and collectives over torch.distributed; independent of graphs."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.collective.group import Group, communicator
from argosy.engine.collective.identity import Identity
from argosy.engine.collective.rank_liveness import Timeouts
from argosy.engine.collective.sharding import sharding_group
from argosy.engine.collective.shm import FlatBuffer
from argosy.engine.collective.work import Work
from argosy.engine.collective.world import World, compare_schedules, connect, disconnect, is_connected, world

__all__ = [
    "FlatBuffer",
    "Group",
    "Identity",
    "Timeouts",
    "Work",
    "World",
    "communicator",
    "compare_schedules",
    "connect",
    "disconnect",
    "is_connected",
    "sharding_group",
    "world",
]

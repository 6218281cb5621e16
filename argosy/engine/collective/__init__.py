"""Groups of ranks over torch.distributed; knows nothing of graphs."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.collective.absent import Patience
from argosy.engine.collective.flat_buffer import FlatBuffer
from argosy.engine.collective.group import Group
from argosy.engine.collective.identity import Identity
from argosy.engine.collective.members import communicator
from argosy.engine.collective.pending import Pending
from argosy.engine.collective.schedule import compare_schedules
from argosy.engine.collective.world import World, connect, disconnect, is_connected, world

__all__ = [
    "FlatBuffer",
    "Group",
    "Identity",
    "Patience",
    "Pending",
    "World",
    "communicator",
    "compare_schedules",
    "connect",
    "disconnect",
    "is_connected",
    "world",
]

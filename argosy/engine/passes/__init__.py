"""The passes, and which of them a program goes through: one ordinary list."""

# SPDX-License-Identifier: Apache-2.0
from torch import fx

from argosy.engine.passes.base import Pass
from argosy.engine.passes.broadcast_startup import BroadcastStartup
from argosy.engine.passes.cast_all_reduce import CastAllReduce
from argosy.engine.passes.channels_last import ChannelsLast
from argosy.engine.passes.fuse_all_reduce import FuseAllReduce
from argosy.engine.passes.fuse_broadcast import FuseBroadcast
from argosy.engine.passes.gather_sparse_gradients import GatherSparseGradients
from argosy.engine.passes.hierarchical import Hierarchical
from argosy.engine.passes.in_place import InPlace
from argosy.engine.passes.insert_all_reduce import InsertAllReduce
from argosy.engine.passes.order_updates import OrderUpdates
from argosy.engine.passes.reduce_to_owner import ReduceToOwner
from argosy.engine.passes.scale_loss_gradient import ScaleLossGradient
from argosy.engine.passes.small_convolutions import SmallConvolutions
from argosy.engine.passes.spread_communicators import SpreadCommunicators
from argosy.engine.passes.sync_batch_norm import SyncBatchNorm

PASSES: tuple[type[Pass], ...] = (
    SyncBatchNorm,
    ScaleLossGradient,
    GatherSparseGradients,
    InsertAllReduce,
    CastAllReduce,
    FuseAllReduce,
    Hierarchical,
    SpreadCommunicators,
    ReduceToOwner,
    FuseBroadcast,
    OrderUpdates,
    BroadcastStartup,
    ChannelsLast,
    SmallConvolutions,
    InPlace,
)


def default_passes(kept: frozenset[fx.Node], without: frozenset[str] = frozenset()) -> list[Pass]:
    """What every program goes through before it runs; `kept` are the nodes that are read after the step.

    `without`: names of passes that the program's build strategy switched off.
    """
    passes: list[Pass] = [ChannelsLast(), SmallConvolutions(), InPlace(kept)]
    return [one for one in passes if one.name not in without]

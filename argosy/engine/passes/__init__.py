"""The passes, and which of them a program goes through: one ordinary list."""

# SPDX-License-Identifier: Apache-2.0
from torch import fx

from argosy.engine.passes.base import Pass
from argosy.engine.passes.broadcast_startup import BroadcastStartup
from argosy.engine.passes.cast_all_reduce import CastAllReduce
from argosy.engine.passes.channels_last import ChannelsLast
from argosy.engine.passes.choose_kernels import ChooseKernels
from argosy.engine.passes.fuse_all_reduce import FuseAllReduce
from argosy.engine.passes.fuse_bn_act import FuseBnAct
from argosy.engine.passes.fuse_bn_add_act import FuseBnAddAct
from argosy.engine.passes.fuse_broadcast import FuseBroadcast
from argosy.engine.passes.fuse_elewise_add_act import FuseElewiseAddAct
from argosy.engine.passes.fuse_optimizer import FuseOptimizer
from argosy.engine.passes.fuse_relu_depthwise_conv import FuseReluDepthwiseConv
from argosy.engine.passes.gather_sparse_gradients import GatherSparseGradients
from argosy.engine.passes.hierarchical import Hierarchical
from argosy.engine.passes.in_place import InPlace
from argosy.engine.passes.insert_all_reduce import InsertAllReduce
from argosy.engine.passes.order_updates import OrderUpdates
from argosy.engine.passes.own_batch_norm import OwnBatchNorm
from argosy.engine.passes.rebuild_activations import DEFAULT_SHARE, RebuildActivations
from argosy.engine.passes.reduce_to_owner import ReduceToOwner
from argosy.engine.passes.scale_loss_gradient import ScaleLossGradient
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
    FuseReluDepthwiseConv,
    FuseBnAct,
    FuseBnAddAct,
    FuseElewiseAddAct,
    OwnBatchNorm,
    FuseOptimizer,
    ChannelsLast,
    ChooseKernels,
    RebuildActivations,
    InPlace,
)


def default_passes(
    kept: frozenset[fx.Node], without: frozenset[str] = frozenset(), memory_optimize: bool | None = None
) -> list[Pass]:
    """What every program goes through before it runs; `kept` are the nodes that are read after the step.

    `without`: names of passes that the program's build strategy switched off. `memory_optimize`: True to rebuild for
    backward all that can be, False to keep it all, None to rebuild what costs next to nothing.
    """
    share = DEFAULT_SHARE if memory_optimize is None else float(memory_optimize)
    passes: list[Pass] = [ChannelsLast(), ChooseKernels(), RebuildActivations(kept, share), InPlace(kept)]
    return [one for one in passes if one.name not in without]

"""The default passes: what every program is rewritten by before it runs."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from torch import fx

from argosy.engine.passes.base import Pass
from argosy.engine.passes.channels_last import ChannelsLast
from argosy.engine.passes.choose_kernels import ChooseKernels
from argosy.engine.passes.fuse_bn_act import FuseBnAct
from argosy.engine.passes.fuse_bn_add_act import FuseBnAddAct
from argosy.engine.passes.fuse_elewise_add_act import FuseElewiseAddAct
from argosy.engine.passes.fuse_optimizer import FuseOptimizer
from argosy.engine.passes.fuse_relu_depthwise_conv import FuseReluDepthwiseConv
from argosy.engine.passes.in_place import InPlace
from argosy.engine.passes.native_batch_norm import NativeBatchNorm
from argosy.engine.passes.rematerialize import DEFAULT_SHARE, Rematerialize

FUSIONS: tuple[Pass, ...] = (
    FuseReluDepthwiseConv(),
    FuseBnAct(),
    FuseBnAddAct(),
    FuseElewiseAddAct(),
    NativeBatchNorm(),
    FuseOptimizer(),
)
"""All fusions, in Paddle's order. Each belongs to a switch of BuildStrategy (static/fusions.py)."""
FUSION_NAMES = tuple(fusion.name for fusion in FUSIONS)
_ON_REQUEST = frozenset({FuseBnAddAct.name})
"""It would match the additions of fuse_elewise_add_act first, and is not faster."""


def default_fusions(requested: Sequence[Pass], without: frozenset[str]) -> list[Pass]:
    """The requested fusions, and the default ones that are not switched off, in order."""
    passes = {fusion.name: fusion for fusion in FUSIONS if fusion.name not in without | _ON_REQUEST}
    passes.update({fusion.name: fusion for fusion in requested})
    places = {name: place for place, name in enumerate(FUSION_NAMES)}
    return sorted(passes.values(), key=lambda fusion: places.get(fusion.name, -1))


def default_passes(
    live_out: frozenset[fx.Node], without: frozenset[str] = frozenset(), memory_optimize: bool | None = None
) -> list[Pass]:
    """The passes that every program goes through before it runs, in order.

    `live_out`: the nodes whose values are read after the step. `without`: names of passes that the program's build
    strategy switched off. `memory_optimize`: True rematerializes every activation that can be, False none, None those
    that cost next to nothing.
    """
    share = DEFAULT_SHARE if memory_optimize is None else float(memory_optimize)
    passes: list[Pass] = [ChannelsLast(), ChooseKernels(), Rematerialize(live_out, share), InPlace(live_out)]
    return [rewrite for rewrite in passes if rewrite.name not in without]

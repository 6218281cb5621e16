"""The fusion passes of a build strategy, in Paddle's order.

fuse_relu_depthwise_conv · fuse_bn_act · fuse_bn_add_act · fuse_elewise_add_act · native_batch_norm · fuse_optimizer
"""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.passes.base import Pass
from argosy.engine.passes.fuse_bn_act import FuseBnAct
from argosy.engine.passes.fuse_bn_add_act import FuseBnAddAct
from argosy.engine.passes.fuse_elewise_add_act import FuseElewiseAddAct
from argosy.engine.passes.fuse_optimizer import FuseOptimizer
from argosy.engine.passes.fuse_relu_depthwise_conv import FuseReluDepthwiseConv
from argosy.engine.passes.native_batch_norm import NativeBatchNorm
from argosy.static.strategies import BuildStrategy


def fusions(build: BuildStrategy) -> tuple[Pass, ...]:
    """The fusion passes. They run on a copy of the program when it is compiled; the program itself is unchanged."""
    passes: list[Pass] = []
    if build.fuse_relu_depthwise_conv:
        passes.append(FuseReluDepthwiseConv())
    if build.fuse_bn_act_ops:
        passes.append(FuseBnAct())
    # On by default in Paddle, where it needs a GPU; here it would match the additions of fuse_elewise_add_act first.
    if build.fuse_bn_add_act_ops and build.is_assigned("fuse_bn_add_act_ops"):
        passes.append(FuseBnAddAct(has_rival=build.fuse_elewise_add_act_ops))
    if build.fuse_elewise_add_act_ops:
        passes.append(FuseElewiseAddAct())
    if build.fuse_bn_act_ops:
        passes.append(NativeBatchNorm())
    if build.fuse_all_optimizer_ops and build.reduce_strategy is BuildStrategy.ReduceStrategy.AllReduce:
        passes.append(FuseOptimizer())
    return tuple(passes)

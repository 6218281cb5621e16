"""Which nodes a build strategy makes one of: the fusions, in Paddle's order.

fuse_relu_depthwise_conv · fuse_bn_act · fuse_bn_add_act · fuse_elewise_add_act · own_batch_norm · fuse_optimizer
"""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.passes.base import Pass
from argosy.engine.passes.fuse_bn_act import FuseBnAct
from argosy.engine.passes.fuse_bn_add_act import FuseBnAddAct
from argosy.engine.passes.fuse_elewise_add_act import FuseElewiseAddAct
from argosy.engine.passes.fuse_optimizer import FuseOptimizer
from argosy.engine.passes.fuse_relu_depthwise_conv import FuseReluDepthwiseConv
from argosy.engine.passes.own_batch_norm import OwnBatchNorm
from argosy.static.build_strategy import BuildStrategy


def fusions(build: BuildStrategy) -> tuple[Pass, ...]:
    """They run on a copy of the program when it is compiled, so that the program itself stays as it was written."""
    passes: list[Pass] = []
    if build.fuse_relu_depthwise_conv:
        passes.append(FuseReluDepthwiseConv())
    if build.fuse_bn_act_ops:
        passes.append(FuseBnAct())
    # On by default in Paddle, where it does nothing without a GPU; here it would take fuse_elewise_add_act's sums.
    if build.fuse_bn_add_act_ops and build.is_assigned("fuse_bn_add_act_ops"):
        passes.append(FuseBnAddAct(has_rival=build.fuse_elewise_add_act_ops))
    if build.fuse_elewise_add_act_ops:
        passes.append(FuseElewiseAddAct())
    if build.fuse_bn_act_ops:
        passes.append(OwnBatchNorm())
    if build.fuse_all_optimizer_ops and build.reduce_strategy is BuildStrategy.ReduceStrategy.AllReduce:
        passes.append(FuseOptimizer())
    return tuple(passes)

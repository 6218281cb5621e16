"""The fusion switches of a build strategy: which fusions are requested, and which are switched off.

    field                        passes                              unassigned
    fuse_relu_depthwise_conv     fuse_relu_depthwise_conv            fused
    fuse_bn_act_ops              fuse_bn_act, native_batch_norm      fused
    fuse_bn_add_act_ops          fuse_bn_add_act                     not fused
    fuse_elewise_add_act_ops     fuse_elewise_add_act                fused
    fuse_all_optimizer_ops       fuse_optimizer                      fused

A field that is assigned keeps Paddle's meaning. Of an unassigned one Argosy decides (passes/__init__.py).
"""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.passes import FUSIONS
from argosy.engine.passes.base import Pass
from argosy.engine.passes.fuse_bn_add_act import FuseBnAddAct
from argosy.static.strategies import BuildStrategy

_PASSES = {
    "fuse_relu_depthwise_conv": ("fuse_relu_depthwise_conv",),
    "fuse_bn_act_ops": ("fuse_bn_act", "native_batch_norm"),
    "fuse_bn_add_act_ops": ("fuse_bn_add_act",),
    "fuse_elewise_add_act_ops": ("fuse_elewise_add_act",),
    "fuse_all_optimizer_ops": ("fuse_optimizer",),
}


def fusions(build: BuildStrategy) -> tuple[Pass, ...]:
    """The requested fusions. They run on a copy of the program when it is compiled or printed."""
    names = _assigned(build, True)
    has_rival = "fuse_elewise_add_act" in names
    return tuple(
        FuseBnAddAct(has_rival=has_rival) if isinstance(fusion, FuseBnAddAct) else fusion
        for fusion in FUSIONS
        if fusion.name in names
    )


def switched_off(build: BuildStrategy) -> frozenset[str]:
    """The names of the fusions that must not run."""
    return _assigned(build, False)


def _assigned(build: BuildStrategy, value: bool) -> frozenset[str]:
    """The passes of the fields that this value was assigned to."""
    fields = [field for field in _PASSES if build.is_assigned(field) and getattr(build, field) is value]
    return frozenset(name for field in fields for name in _PASSES[field])

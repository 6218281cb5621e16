"""Replace the batch norms that no fusion matched by Argosy's C++ kernel, which makes fewer passes over memory.

    before    y, mean, invstd = native_batch_norm(x, w, b)
              dx, dw, db = native_batch_norm_backward(dy, x, w, mean, invstd)
    after     y, mean, invstd = bn_act(x, w, b, None, eps, 'none')
              dx, dw, db = bn_act_backward(dy, None, x, None, w, b, mean, invstd, 'none')

Runs after the fusions, as a part of `fuse_bn_act_ops`. Only norms in training mode are rewritten.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import fx

from argosy.engine.ops.bn_act import bn_act, bn_act_backward
from argosy.engine.passes.base import Report
from argosy.engine.passes.fusion import Fusion, Tally, kernel_obstacle

aten = torch.ops.aten
_TRAINING = {aten.native_batch_norm.default: 5, aten.native_batch_norm_backward.default: 7}
"""op -> index of its argument `training`."""


@dataclass(frozen=True)
class NativeBatchNorm(Fusion):
    """See the module's picture."""

    name: ClassVar[str] = "native_batch_norm"
    keeps_strides: ClassVar[bool] = False

    def fuse(self, graph: fx.Graph) -> Report:
        norms = [n for n in graph.nodes if n.target in _TRAINING and n.args[_TRAINING[n.target]]]
        tally = Tally("batch norms and their backwards")
        for node in norms:
            is_forward = node.target is aten.native_batch_norm.default
            elements, channels = (
                (node.args[:1], node.args[1:3]) if is_forward else (node.args[:2], node.args[2:3])
            )
            reason = kernel_obstacle(elements, channels)
            tally.count(node, reason)
            if not reason:
                _replace(node)
        return Report(tally.fused, tally.text() if norms else "no batch norm is left")


def _replace(node: fx.Node) -> None:
    if node.target is aten.native_batch_norm.default:
        x, weight, bias, *_, eps = node.args
        node.target, node.args = bn_act, (x, weight, bias, None, eps, "none")
        node._rename("bn")
        return
    dy, x, weight, _, _, mean, invstd, _, _, mask = node.args
    node.target = bn_act_backward
    node.args = (
        dy,
        None,
        x,
        None,
        weight,
        None,
        mean,
        invstd,
        "none",
        mask,
    )  # without activation the bias is unused
    node._rename("bn_backward")
    node.meta["val"] = (*node.meta["val"], None)

"""Make the sum of the ranks' gradients the gradient of their mean loss.

    before    loss@GRAD = ones_like(loss)
    after     loss@GRAD = full_like(loss, 0.25)             4 ranks

Scales one number instead of every gradient. Paddle's name for it is `GradientScaleStrategy.CoeffNumDevice`.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import fx

from argosy.engine.errors import ProgramError
from argosy.engine.passes.base import Pass, Report

aten = torch.ops.aten


@dataclass(frozen=True)
class ScaleLossGradient(Pass):
    """See the module's picture. `seed` is the node of loss@GRAD."""

    name: ClassVar[str] = "scale_loss_gradient"

    seed: fx.Node
    ranks: int

    def run(self, graph: fx.Graph) -> Report:
        node = self.seed
        if node.target is aten.full_like.default and node.args[1] == 1 / self.ranks:
            return Report(0, "the gradient of the loss is scaled already")
        if node.target is not aten.ones_like.default:
            raise ProgramError(
                f"{node.name} is {node.target}, not the ones_like that backward starts with; minimize the loss once"
            )
        node.target = aten.full_like.default
        node.args = (node.args[0], 1 / self.ranks)
        return Report(1, f"the gradient of the loss is 1/{self.ranks}")

"""Local SGD: each rank updates its own parameters, and all ranks average them after every step.

    before    sgd(w, g, rate)
    after     sgd(w, g, rate)
              s = all_reduce(w, 'dp', 'w')
              wait(s)
              mul_(w, 1 / ranks)

The transpiler's `collective_mode = "local_sgd"`. Averaging parameters applies the mean of the ranks' updates, because
all ranks start the step with the same values.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import fx

from argosy.engine.ops.all_reduce import all_reduce, wait
from argosy.engine.passes.base import Pass, Report
from argosy.engine.passes.send_gradients import at_end


@dataclass(frozen=True)
class AverageParameters(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "average_parameters"

    parameters: tuple[tuple[str, fx.Node], ...]
    ranks: int
    group: str = "dp"

    def run(self, graph: fx.Graph) -> Report:
        started = [
            at_end(graph, all_reduce, (node, self.group, name), node) for name, node in self.parameters
        ]
        for (_, node), start in zip(self.parameters, started, strict=True):
            summed = at_end(graph, wait, (start,), node)
            mean = at_end(graph, torch.ops.aten.mul_.Scalar, (summed, 1.0 / self.ranks), node)
            mean.meta["replaces"] = node
        return Report(
            len(started), f"{len(started)} parameters are averaged over {self.ranks} ranks after each step"
        )

"""Local SGD: each rank updates its own parameters, and the ranks average them after every step, or in a period.

    before    sgd(w, g, rate)
    after     sgd(w, g, rate)
              c = clone(w)
              s = all_reduce(c, 'dp', 'w')
              r = wait(s)
              store_mean(w, r, 2)                               2 ranks

Averaging parameters applies the mean of the ranks' changes, because all ranks had the same values after the last
average. The sum is computed in a copy, which fuse_all_reduce makes in a flat buffer, so that a failed collective leaves
the parameters valid. Parameters and optimizer state differ from rank to rank between two averages: they have
`rank_local` in their meta, so that each rank saves its own. Paddle's names: `localsgd`, and the transpiler's
`collective_mode = "local_sgd"`.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import fx

from argosy.engine.ir.effects import mutated_inputs
from argosy.engine.ir.infer import infer
from argosy.engine.ir.periods import in_period
from argosy.engine.ops.collectives import all_reduce, wait
from argosy.engine.ops.local_sgd import store_mean
from argosy.engine.passes.base import Pass, Report

aten = torch.ops.aten


@dataclass(frozen=True)
class AverageParameters(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "average_parameters"

    parameters: tuple[tuple[str, fx.Node], ...]
    """(name, placeholder) of each."""
    ranks: int
    group: str = "dp"
    period: str = ""
    """The period of the program in which the ranks average; "": after every step."""
    overlap: bool = False
    """True: start all all-reduces before the first wait."""

    def run(self, graph: fx.Graph) -> Report:
        for node in graph.nodes:
            if node.meta["role"] == "optimize":
                for state in mutated_inputs(node):
                    state.meta["rank_local"] = True
        sums = [(node, *self._start(graph, name, node)) for name, node in self.parameters]
        for node, started, arrived in sums:
            total = arrived or self._create(graph, wait, (started,), node)
            self._create(graph, store_mean, (node, total, self.ranks), node)
        when = f"in period {self.period!r}" if self.period else "after each step"
        return Report(len(sums), f"{len(sums)} parameters are averaged over {self.ranks} ranks {when}")

    def _start(self, graph: fx.Graph, name: str, parameter: fx.Node) -> tuple[fx.Node, fx.Node | None]:
        """The started all-reduce, and its wait unless they overlap."""
        parameter.meta["rank_local"] = True
        copied = self._create(
            graph, aten.clone.default, (parameter,), parameter, memory_format=torch.contiguous_format
        )
        started = self._create(graph, all_reduce, (copied, self.group, name), parameter)
        return started, None if self.overlap else self._create(graph, wait, (started,), parameter)

    def _create(
        self,
        graph: fx.Graph,
        target: torch._ops.OpOverload,
        args: tuple[Any, ...],
        like: fx.Node,
        **kwargs: Any,
    ) -> fx.Node:
        node = graph.create_node("call_function", target, args, kwargs, target._opname)
        node.meta = {"role": "communicate", "source": like.meta.get("source")}
        node.meta |= in_period(self.period) if self.period else {}
        node.meta["val"] = infer(node)
        return node

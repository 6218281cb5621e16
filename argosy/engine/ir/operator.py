"""Operator: Paddle's view of a node, `for op in program.global_block().ops: print(op.type)`."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass

from torch import fx

from argosy.engine.ir.show import op_name


@dataclass(frozen=True)
class Operator:
    """A read-only view of one node; passes rewrite programs."""

    node: fx.Node
    output_arg_names: tuple[str, ...]
    input_arg_names: tuple[str, ...]

    @property
    def type(self) -> str:
        """convolution, relu, momentum: the name of ATen's or Argosy's op."""
        return op_name(self.node)

    @property
    def role(self) -> str:
        """forward, backward, optimize or communicate."""
        return str(self.node.meta["role"])

    def __str__(self) -> str:
        return f"{', '.join(self.output_arg_names)} = {self.type}({', '.join(self.input_arg_names)})"


def operators(graph: fx.Graph, names: dict[fx.Node, str]) -> list[Operator]:
    """The calls of a graph in order."""
    calls = (n for n in graph.nodes if n.op == "call_function")
    return [Operator(n, (names[n],), tuple(names[i] for i in n.all_input_nodes)) for n in calls]

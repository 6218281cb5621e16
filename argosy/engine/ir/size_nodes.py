"""SizeNodes: the nodes that compute symbolic sizes.

    x: float32[N, 3]     x.shape[0] * 2  ──▶  sym_size = sym_size(x, 0);  mul = sym_size * 2

A size is a sympy expression over the unknown sizes of the feeds. The nodes of an expression are created when an
operator first has it as an argument.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from argosy.engine.errors import ProgramError
from argosy.engine.ir.infer import infer
from argosy.engine.ir.symbols import Symbols

SymbolicSize = torch.SymInt | torch.SymFloat | torch.SymBool

aten = torch.ops.aten


class SizeArithmetic(PythonReferenceAnalysis):
    """Python implementations of sympy's functions on sizes; torch's class leaves division to sympy."""

    @staticmethod
    def int_truediv(a: Any, b: Any) -> Any:
        return a / b

    truediv = int_truediv


class SizeNodes:
    """The nodes of sizes in one graph, one for each expression."""

    def __init__(
        self,
        graph: fx.Graph,
        symbols: Symbols,
        last_input: Callable[[], fx.Node],
        meta: Callable[[], dict[str, Any]],
        created: Callable[[fx.Node], None],
    ) -> None:
        """`last_input` is where nodes of feed sizes are inserted, `meta` that of a new node; `created` is called
        with every new node."""
        self._graph = graph
        self._symbols = symbols
        self._last_input = last_input
        self._meta = meta
        self._created = created
        self._places: dict[sympy.Symbol, tuple[fx.Node, int]] = {}  # symbol -> a tensor, and its dimension
        self._expressions: dict[sympy.Expr, fx.Node] = {}

    def copy_from(self, other: SizeNodes, node_map: dict[fx.Node, fx.Node]) -> None:
        """Take over the sizes of another graph, whose copy this one is."""
        self._places = {s: (node_map[n], dim) for s, (n, dim) in other._places.items() if n in node_map}
        self._expressions = {e: node_map[n] for e, n in other._expressions.items() if n in node_map}

    def bind(self, value: torch.Tensor, node: fx.Node) -> None:
        """Note which symbols are dimensions of this value, which the node computes."""
        for dim, size in enumerate(value.shape):
            if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                self._places.setdefault(size.node.expr, (node, dim))

    def bind_size(self, value: SymbolicSize, node: fx.Node) -> None:
        """Note that a node computes this size."""
        self._expressions.setdefault(value.node.expr, node)

    def forget(self, node: fx.Node) -> None:
        """Drop the expressions that a node computes, before it is erased."""
        self._expressions = {e: n for e, n in self._expressions.items() if n is not node}

    def forget_dimensions(self, node: fx.Node) -> None:
        """Drop the dimensions of a node's value, as if it had never been bound."""
        self._places = {s: place for s, place in self._places.items() if place[0] is not node}

    def node(self, value: SymbolicSize) -> Any:
        """The node for a symbolic size, or the number if the size is known."""
        expr = self._symbols.env.replace(value.node.expr)
        if not expr.free_symbols:
            return value.node.pytype(expr)
        if expr not in self._expressions:
            tracer = _Tracer(self._graph)
            known = {s: fx.Proxy(self._symbol(s), tracer) for s in sorted(expr.free_symbols, key=str)}
            proxy = sympy_interp(SizeArithmetic, known, expr)  # creates nodes such as operator.mul
            self._expressions[expr] = proxy.node
            for node in tracer.created:
                self._created(node)
                node.meta = self._meta()
                node.meta["val"] = infer(node)
        return self._expressions[expr]

    def _symbol(self, symbol: sympy.Symbol) -> fx.Node:
        if symbol in self._expressions:
            return self._expressions[symbol]
        matches = [s for s in self._places if s == symbol or self._symbols.env.replace(s) == symbol]
        if not matches:
            raise ProgramError(f"the size {symbol} is not a dimension of a feed of this program")
        holder, dim = self._places[matches[0]]
        after = self._last_input() if holder.op == "placeholder" else holder
        with self._graph.inserting_after(after):
            node = self._graph.call_function(aten.sym_size.int, (holder, dim))
        self._created(node)
        node.meta = {
            "role": "forward",
            "source": holder.meta.get("source"),
            "val": holder.meta["val"].shape[dim],
        }
        self._expressions[symbol] = node
        return node


class _Tracer(fx.Tracer):
    """Collects the nodes that arithmetic on fx proxies creates in a graph."""

    def __init__(self, graph: fx.Graph) -> None:
        super().__init__()
        self.graph = graph
        self.created: list[fx.Node] = []

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        self.created.append(node)
        return node

"""Writes down every ATen operator that runs under it as a node of an fx graph.

    torch call on fake tensors ──▶ autograd ──▶ Recorder ──▶ FakeTensorMode
                                                  │            shape and dtype of the result
                                                  ▼
                                          node: op, inputs, meta

It sits below autograd: composite functions arrive as the operators they are made of, and when
`torch.autograd.grad` runs under it, the operators of backward are written down the same way. A node's meta:

    val      fake tensor (or tuple of them): shape, dtype, strides
    role     forward, backward, optimize or communicate
    source   the user's line; of a backward node the line of the forward operator that it differentiates
"""

# SPDX-License-Identifier: Apache-2.0
import logging
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sympy
import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis
from torch.utils.weak import WeakTensorKeyDictionary

from argosy.engine.errors import ProgramError
from argosy.engine.ir.infer import infer
from argosy.engine.ir.source import SourceLine, user_line
from argosy.engine.ir.symbols import Symbols

ROLES = ("forward", "backward", "optimize", "communicate")

aten = torch.ops.aten

# It writes a page for every op that does not fit; the error that we raise says it in a line.
logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
_ALIASES = frozenset({aten.detach.default, aten.alias.default, aten.lift_fresh.default})
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Recorder(TorchDispatchMode):
    """Records into one graph; entered by `Program.recording`, above the program's fake mode."""

    def __init__(self, graph: fx.Graph, symbols: Symbols) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has not annotated it
        self.graph = graph
        self.symbols = symbols
        self.role = "forward"
        self.constants: dict[str, torch.Tensor] = {}
        self.node_of: Any = (
            WeakTensorKeyDictionary()
        )  # fake tensor -> Node, or (Node, index) until it is used
        self.placeholder_of: Any = (
            WeakTensorKeyDictionary()
        )  # fake tensor -> its placeholder, changed since or not
        self._versions: Any = WeakTensorKeyDictionary()  # constant -> its version when it became one
        self._sizes: dict[sympy.Symbol, tuple[fx.Node, int]] = {}
        self._expressions: dict[sympy.Expr, fx.Node] = {}
        self._lines: dict[int, SourceLine | None] = {}  # autograd's sequence number -> forward line

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports all of dynamo, a second of start-up

    def copy_to(self, graph: fx.Graph, node_map: dict[fx.Node, fx.Node]) -> "Recorder":
        """A recorder for a copy of the graph: the same fake tensors, the other graph's nodes."""
        made = Recorder(graph, self.symbols)
        made.constants = dict(self.constants)
        made._lines = self._lines
        for fake, entry in self.node_of.items():
            node, index = entry if isinstance(entry, tuple) else (entry, None)
            if node not in node_map:  # a variable of the scope whose last change was left out
                node, index = self.placeholder_of.get(fake), None
            if node in node_map:
                made.node_of[fake] = node_map[node] if index is None else (node_map[node], index)
        for fake, node in self.placeholder_of.items():
            if node in node_map:
                made.placeholder_of[fake] = node_map[node]
        made._sizes = {s: (node_map[n], dim) for s, (n, dim) in self._sizes.items() if n in node_map}
        made._expressions = {e: node_map[n] for e, n in self._expressions.items() if n in node_map}
        return made

    @contextmanager
    def in_role(self, role: str) -> Iterator[None]:
        """Nodes recorded inside have this role."""
        assert role in ROLES, f"role {role!r} is not one of {ROLES}"
        old, self.role = self.role, role
        try:
            yield
        finally:
            self.role = old

    def placeholder(self, name: str, value: torch.Tensor) -> fx.Node:
        """A value that comes from outside: a feed or a variable of the scope."""
        with self.graph.inserting_before(_first_call(self.graph)):
            node = self.graph.placeholder(_identifier(name))
        node.meta = {"val": value, "role": "forward", "source": user_line()}
        self.placeholder_of[value] = node
        self.bind(value, node)
        return node

    def rebind(self, old: fx.Node, new: fx.Node) -> None:
        """What `old` stood for, `new` stands for."""
        for fake, entry in list(self.node_of.items()):
            if entry is old:
                self.node_of[fake] = new

    def bind(self, value: torch.Tensor, node: fx.Node) -> None:
        """Say that this fake tensor is the value of that node."""
        self.node_of[value] = node
        for dim, size in enumerate(value.shape):
            if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                self._sizes.setdefault(size.node.expr, (node, dim))

    def node(self, value: torch.Tensor) -> fx.Node:
        """The node that makes this value; a real tensor becomes a constant of the program."""
        entry = self.node_of.get(value)
        if entry is None or self._versions.get(value, value._version) != value._version:
            return self._constant(value)
        if isinstance(entry, fx.Node):
            return entry
        producer, index = entry
        last = producer
        while last.next.target is operator.getitem and last.next.args[0] is producer:
            last = last.next
        with self.graph.inserting_after(last):
            item = self.graph.call_function(operator.getitem, (producer, index))
        item.meta = {**producer.meta, "val": value}
        self.node_of[value] = item
        return item

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _ALIASES and isinstance(args[0], FakeTensor) and args[0] in self.node_of:
            return self._alias(func, args)
        line = self._line()
        args, kwargs = tree_map(self._constant_as_fake, (args, kwargs))
        if func is aten.lift_fresh.default:
            func = aten.clone.default  # torch.tensor(…) inside a program: a new tensor in every run
        out = func(*args, **kwargs)
        self.symbols.note_guards(line)
        # tensor.item(): a number that a later run knows, unless it is known already
        is_number = func is aten._local_scalar_dense.default and isinstance(out, _SYMBOLIC)
        if not _makes_tensors(out) and func._schema.returns and not is_number:
            return out  # a question about a tensor, such as its device
        node_args, node_kwargs = tree_map(self._argument, (args, kwargs))
        node = self.graph.create_node("call_function", func, node_args, node_kwargs, func._opname)
        node.meta = {"val": out, "role": self.role, "source": line}
        if is_number:
            self._expressions[out.node.expr] = node
        self._bind_result(out, node)
        return out

    def _constant_as_fake(self, value: Any) -> Any:
        """A real tensor's stand-in, so that views of it are known to share its memory."""
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            node = self.node(value)
            self.node_of[node.meta["val"]] = node
            return node.meta["val"]
        return value

    def _alias(self, func: OpOverload, args: tuple[Any, ...]) -> Any:
        out = func(*args)
        self.node_of[out] = self.node_of[args[0]]
        return out

    def _bind_result(self, out: Any, node: fx.Node) -> None:
        if isinstance(out, torch.Tensor):
            self.bind(out, node)
        elif isinstance(out, tuple | list):
            for index, one in enumerate(out):
                if isinstance(one, torch.Tensor):
                    self.node_of[one] = (node, index)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.node(value)
        if isinstance(value, _SYMBOLIC):
            return self.size(value)
        return value

    def size(self, value: Any) -> Any:
        """The node, or the number, for a symbolic size."""
        expr = self.symbols.env.replace(value.node.expr)
        if not expr.free_symbols:
            return value.node.pytype(expr)
        if expr not in self._expressions:
            tracer = fx.Tracer()
            tracer.graph = self.graph
            known = {s: fx.Proxy(self._symbol(s), tracer) for s in sorted(expr.free_symbols, key=str)}
            made = sympy_interp(PythonReferenceAnalysis, known, expr)  # writes operator.mul and the like
            self._expressions[expr] = made.node
            for node in self.graph.nodes:
                if "role" not in node.meta:
                    node.meta = {"role": self.role, "source": self._line()}
                    node.meta["val"] = infer(node)
        return self._expressions[expr]

    def _symbol(self, symbol: sympy.Symbol) -> fx.Node:
        if symbol in self._expressions:
            return self._expressions[symbol]
        matches = [s for s in self._sizes if s == symbol or self.symbols.env.replace(s) == symbol]
        if not matches:
            raise ProgramError(f"the size {symbol} stands for no dimension of a feed of this program")
        holder, dim = self._sizes[matches[0]]
        after = _last_placeholder(self.graph) if holder.op == "placeholder" else holder
        with self.graph.inserting_after(after):
            node = self.graph.call_function(aten.sym_size.int, (holder, dim))
        node.meta = {
            "role": "forward",
            "source": holder.meta.get("source"),
            "val": holder.meta["val"].shape[dim],
        }
        self._expressions[symbol] = node
        return node

    def _constant(self, value: torch.Tensor) -> fx.Node:
        if isinstance(value, FakeTensor):
            raise ProgramError(
                f"a tensor of shape {tuple(value.shape)} belongs to another program; build all of a program "
                "under one program_guard"
            )
        name = f"constant_{len(self.constants)}"
        with _disable_current_modes():
            self.constants[name] = value.detach().clone(memory_format=torch.contiguous_format)
            fake = self.symbols.mode.from_tensor(self.constants[name], static_shapes=True)
        with self.graph.inserting_before(_first_call(self.graph)):
            node = self.graph.create_node("get_attr", name, (), {}, name=name)
        node.meta = {"val": fake, "role": "forward", "source": self._line()}
        self.node_of[value] = node
        self._versions[value] = value._version
        return node

    def _line(self) -> SourceLine | None:
        """The user's line; in backward, the line of the forward operator behind the current formula."""
        current = torch._C._current_autograd_node()
        if current is not None:
            return self._lines.get(current._sequence_nr())
        line = user_line()
        if self.role == "forward":
            # The formula of the operator about to run was numbered just before it reached us.
            self._lines.setdefault(torch.autograd._get_sequence_nr() - 1, line)
        return line


def why(error: Exception) -> str:
    """The first sentence of an error that torch raised while a program was built, in our words where we know it."""
    if isinstance(error, DataDependentOutputException | GuardOnDataDependentSymNode):
        return (
            "it needs the value of a variable, and there is none while the program is built; keep the decision "
            "inside the program (torch.where, masks) or fetch the value and feed it back"
        )
    return str(error).split("\n", 1)[0] or type(error).__name__


def _makes_tensors(out: Any) -> bool:
    return isinstance(out, torch.Tensor) or (isinstance(out, tuple | list) and any(map(_makes_tensors, out)))


def _first_call(graph: fx.Graph) -> fx.Node:
    """The first node that is neither placeholder nor constant, or the end of the graph."""
    calls = (node for node in graph.nodes if node.op not in ("placeholder", "get_attr"))
    return next(calls, graph._root)


def _last_placeholder(graph: fx.Graph) -> fx.Node:
    return _first_call(graph)._prev


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)

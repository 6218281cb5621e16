"""BlockRecorder: records the code of a branch or of a loop's body into a graph of its own.

    program     x ─▶ … ─▶ cond(pred, x, w) ─▶ …
                              │
    block       placeholders x', w' ─▶ mm(x', w')         x' is what code in the block reads for x

A value of the enclosing program that the code reads becomes an input: a new leaf of autograd, so that the block can be
differentiated by itself. Writing to a variable of the enclosing program (`assign(x, output=y)`) mutates nothing: code
that follows in the block reads the new value, which is a result of the block. Parameters that are created inside belong
to the program.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from argosy.engine.errors import ProgramError
from argosy.engine.ir.recorder import Recorder
from argosy.engine.ir.size_nodes import SymbolicSize
from argosy.engine.ir.symbols import Symbols

if TYPE_CHECKING:
    from argosy.engine.ir.program import Program
    from argosy.engine.ir.variable import Variable


@dataclass(frozen=True)
class Capture:
    """A value of the enclosing program that a block reads."""

    source: Any
    """The tensor or size in the enclosing program."""
    local: Any
    """What it is in the block: a leaf of autograd, or the size itself."""
    node: fx.Node
    """Its placeholder."""
    version: int
    """The version of the source when it was captured: it must be the same when backward reads it."""


class BlockRecorder(Recorder):
    """Records one block; `in_loop`: every float is differentiated for, as a later iteration may make it depend."""

    def __init__(self, outer: Recorder, in_loop: bool = False) -> None:
        super().__init__(fx.Graph(), outer.symbols)
        self.outer = outer
        self.in_loop = in_loop
        self.role = outer.role
        self.has_history = outer.has_history
        self.placeholder_of = outer.placeholder_of
        self._lines, self._tags = outer._lines, outer._tags
        self.captures: list[Capture] = []
        self.variables: list[Variable] = []
        """The variables that were computed inside."""
        self.written: dict[int, tuple[Variable, torch.Tensor]] = {}
        """By the id of its value outside: a variable that the block writes, and the value that it has then."""
        self._sources: dict[int | sympy.Expr, Capture] = {}
        """By id of the value outside, or by expression of a size."""
        self._leaves: set[int] = set()

    # --- reading --------------------------------------------------------------------------------------

    def local(self, value: torch.Tensor) -> torch.Tensor:
        """The value in this block of a value of the enclosing program, which becomes an input."""
        if not isinstance(value, FakeTensor) or value in self.node_of:
            return value
        if id(value) in self.written:
            return self.written[id(value)][1]
        if id(value) not in self._sources:
            source = self.outer.local(value)  # two variables of the enclosing block may have one value
            known = next((capture for capture in self.captures if capture.source is source), None)
            self._sources[id(value)] = known or self._capture(source)
        local: torch.Tensor = self._sources[id(value)].local
        return local

    def capture(self, source: torch.Tensor, is_differentiable: bool = True) -> torch.Tensor:
        """A new input for a value of the enclosing program, even if it is one already."""
        local: torch.Tensor = self._capture(source, is_differentiable).local
        return local

    def _capture(self, source: torch.Tensor, is_differentiable: bool = True) -> Capture:
        outside = self.outer.node(source)
        local = contiguous_fake(source, self.symbols)
        if is_differentiable and local.dtype.is_floating_point and (self.in_loop or source.requires_grad):
            local.requires_grad_()
        node = self._new_input(outside.name, local)
        self.bind(local, node)
        self._memory_of_constants.add(int(local.untyped_storage()._cdata))
        capture = Capture(source, local, node, source._version)
        self.captures.append(capture)
        self._leaves.add(id(local))
        return capture

    def _new_input(self, name: str, value: Any) -> fx.Node:
        with self.graph.inserting_after(self._last_placeholder()):
            node = self.graph.placeholder(name)
        node.meta = {"val": value, "role": "forward", "source": self._line()}
        self._created(node)
        return node

    def _constant(self, value: torch.Tensor) -> fx.Node:
        if isinstance(value, FakeTensor):
            return self.node(self.local(value))
        outside = self.outer.node(value).meta["val"]
        node = self.node(self.local(outside))
        self._set_node(value, node)
        self._versions[value] = value._version
        return node

    def _argument(self, value: Any) -> Any:
        if isinstance(value, SymbolicSize):
            expression = self.symbols.env.replace(value.node.expr)
            is_fed = expression.free_symbols <= self.symbols.env.backed_var_to_val.keys()
            if expression.free_symbols and is_fed:
                return self._size_input(value, expression)
        return super()._argument(value)

    def _size_input(self, value: SymbolicSize, expression: sympy.Expr) -> fx.Node:
        if expression not in self._sources:
            node = self._new_input("size", value)
            capture = self._sources[expression] = Capture(value, value, node, 0)
            self.captures.append(capture)
        return self._sources[expression].node

    def placeholder(self, name: str, value: torch.Tensor) -> fx.Node:
        return self.outer.placeholder(name, value)

    def constant(self, value: torch.Tensor) -> fx.Node:
        return self.node(self.local(self.outer.constant(value).meta["val"]))

    def erase(self, node: fx.Node) -> None:
        self.captures = [capture for capture in self.captures if capture.node is not node]
        self._sources = {key: capture for key, capture in self._sources.items() if capture.node is not node}
        super().erase(node)

    def _check_mutated(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            super()._check_mutated(func, args, kwargs)
        except ProgramError:
            raise ProgramError(
                f"{func._opname} inside a branch or a loop writes into a variable of the enclosing program, such as "
                "the running statistics of a batch norm; move the layer out of the branch, or assign the result "
                "(assign, increment, x[i] = v)"
            ) from None

    # --- writing --------------------------------------------------------------------------------------

    def is_local(self, value: torch.Tensor) -> bool:
        """True if the value was computed in this block."""
        return value in self.node_of and id(value) not in self._leaves

    def write(self, variable: Variable, value: torch.Tensor) -> None:
        """Let code that follows read this value for a variable of the enclosing program."""
        if id(variable.value) not in self._sources:  # the value before is an input: the block may not run
            self.local(variable.value)
        self.written[id(variable.value)] = (variable, value)

    def before(self, variable: Variable) -> torch.Tensor:
        """The value of a written variable before the block, as seen inside."""
        local: torch.Tensor = self._sources[id(variable.value)].local
        return local

    # --- differentiation ------------------------------------------------------------------------------

    def copy_block(self, outer: Recorder) -> BlockRecorder:
        """A recorder that extends a copy of this block, as by its backward part, inside of `outer`."""
        copied = BlockRecorder(outer, self.in_loop)
        node_map: dict[fx.Node, fx.Node] = {}
        for node in self.graph.nodes:
            node_map[node] = copied.graph.node_copy(node, node_map.__getitem__)
        self.bind_copy(copied, node_map)
        for key, capture in self._sources.items():
            copied._sources[key] = Capture(
                capture.source, capture.local, node_map[capture.node], capture.version
            )
        copied.captures = [Capture(c.source, c.local, node_map[c.node], c.version) for c in self.captures]
        copied._leaves = set(self._leaves)
        copied._memory_of_constants = set(self._memory_of_constants)
        return copied

    def check_leaves(self, outputs: Sequence[torch.Tensor]) -> None:
        """Raise if autograd's graph of the outputs leaves the block: a tensor was read other than as an input."""
        known = {id(capture.local) for capture in self.captures}
        todo = [out.grad_fn for out in outputs if out.grad_fn is not None]
        seen = set(todo)
        while todo:
            function = todo.pop()
            leaf = getattr(function, "variable", None)
            if leaf is not None and id(leaf) not in known:
                raise ProgramError(
                    f"code inside a branch or a loop reads a tensor of shape {list(leaf.shape)} of the enclosing "
                    "program directly; use the Variable"
                )
            new = [f for f, _ in function.next_functions if f is not None and f not in seen]
            seen.update(new)
            todo += new


@contextmanager
def recording_block(program: Program, in_loop: bool = False) -> Iterator[BlockRecorder]:
    """Record what is called inside into a block of the program."""
    outer = program.recorder
    block = BlockRecorder(outer, in_loop)
    with extending_block(program, block):
        yield block


@contextmanager
def extending_block(program: Program, block: BlockRecorder) -> Iterator[None]:
    """Record what is called inside into this block."""
    outer, before = program.recorder, set(program.vars)
    program.recorder = block
    program.symbols.env.context = block._context
    try:
        yield
    finally:
        program.recorder = outer
        program.symbols.env.context = outer._context
        inner = [v for n, v in program.vars.items() if n not in before and v.value in block.node_of]
        block.variables += [program.unregister(variable) for variable in inner]


@contextmanager
def outside_of_block(program: Program, block: BlockRecorder) -> Iterator[None]:
    """While this block is recorded: record what is called inside into the enclosing program."""
    assert program.recorder is block, "another block is being recorded"
    program.recorder = block.outer
    try:
        yield
    finally:
        program.recorder = block


def contiguous_fake(value: torch.Tensor, symbols: Symbols) -> torch.Tensor:
    """A new contiguous fake tensor of the same type, which no node computes."""
    with _disable_current_modes(), symbols.mode:
        return torch.empty(value.shape, dtype=value.dtype, device=value.device)

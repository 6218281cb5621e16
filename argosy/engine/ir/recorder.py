"""Recorder: a dispatch mode that records every ATen operator as a node of an fx graph.

    torch call on fake tensors ──▶ autograd ──▶ Recorder ──▶ FakeTensorMode
                                                  │            shape and dtype of the result
                                                  ▼
                                          node: op, inputs, meta

It runs below autograd: composite functions arrive as the operators that they consist of, and when
`torch.autograd.grad` runs under it, the operators of backward are recorded the same way. A node's meta:

    val      fake tensor (or tuple of them): shape, dtype, strides
    role     forward, backward, optimize or communicate
    source   the user's source line; for a backward node, that of the forward operator that it differentiates
"""

# SPDX-License-Identifier: Apache-2.0
import logging
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

from argosy.engine import process_effects
from argosy.engine.errors import ProgramError
from argosy.engine.ir.blocks import BlockCall
from argosy.engine.ir.infer import value_of_constant
from argosy.engine.ir.periods import in_period
from argosy.engine.ir.recorded_call import RecordedCall
from argosy.engine.ir.shape_functions import fake_result
from argosy.engine.ir.size_nodes import SizeNodes, SymbolicSize
from argosy.engine.ir.source import SourceLine, user_line
from argosy.engine.ir.symbols import Symbols

ROLES = ("forward", "backward", "optimize", "communicate")

aten = torch.ops.aten
_ALIASES = frozenset({aten.detach.default, aten.alias.default, aten.lift_fresh.default})
_DEVICE = torch.ops.prim.device.default
_INPUTS = ("placeholder", "get_attr")


class Recorder(TorchDispatchMode):
    """Records into one graph; entered by `Program.recording`, above the program's fake mode."""

    def __init__(self, graph: fx.Graph, symbols: Symbols) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has not annotated it
        self.graph = graph
        self.symbols = symbols
        self.symbols.env.context = self._context
        self.role = "forward"
        self.call: int | None = None
        """The number of the call being recorded, if `clone(for_test=True)` may have to record it again."""
        self.calls: dict[int, RecordedCall] = {}
        """Calls that may differ in evaluation mode, by the number in the meta `call` of their nodes."""
        self.has_history = True
        """False: loaded, or replayed for testing, so that the values have no autograd graph to differentiate."""
        self.constants: dict[str, torch.Tensor] = {}
        self.node_of: Any = WeakTensorKeyDictionary()
        """Fake tensor -> its node, or (node, index) for one of several outputs whose getitem is not created yet."""
        self.placeholder_of: Any = WeakTensorKeyDictionary()
        """Fake tensor -> its placeholder, even if it was mutated since."""
        self._versions: Any = WeakTensorKeyDictionary()  # constant -> its version when it was recorded
        self._sizes = SizeNodes(
            graph, symbols, self._last_placeholder, lambda: self._meta(self._line()), self._created
        )
        self._lines: dict[int, SourceLine | None] = {}  # autograd's sequence number -> forward line
        self._period: dict[str, Any] = {}
        self._tag = ""
        self._tags: dict[int, str] = {}  # autograd's sequence number -> tag of the forward operator
        self._last_input: fx.Node | None = None  # the last placeholder or constant at the head of the graph
        self._memory_of_constants: set[int] = set()
        self._records_aliases = False
        self._undo_log: list[tuple[torch.Tensor | None, Any]] | None = None
        """What `attempt` may have to undo: (None, a new node), or (value, its previous entry in node_of)."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would make torch import all of dynamo, a second of start-up

    def copy_to(self, graph: fx.Graph, node_map: dict[fx.Node, fx.Node]) -> "Recorder":
        """A recorder for a copy of the graph: the same fake tensors, bound to the copy's nodes."""
        copied = Recorder(graph, self.symbols)
        copied.constants = dict(self.constants)
        self.bind_copy(copied, node_map)
        return copied

    def bind_copy(self, copied: "Recorder", node_map: dict[fx.Node, fx.Node]) -> None:
        """Bind the fake tensors to the nodes of a copy of the graph, which another recorder extends."""
        copied._lines, copied._tags = self._lines, self._tags
        copied.has_history = self.has_history
        calls = {number: call.with_nodes(node_map) for number, call in self.calls.items()}
        copied.calls = {number: call for number, call in calls.items() if call is not None}
        for fake, entry in self.node_of.items():
            node, index = entry if isinstance(entry, tuple) else (entry, None)
            if node not in node_map:  # a variable of the scope whose last update is not in the copy
                node, index = self.placeholder_of.get(fake), None
            if node in node_map:
                copied.node_of[fake] = node_map[node] if index is None else (node_map[node], index)
        for fake, node in self.placeholder_of.items():
            if node in node_map:
                copied.placeholder_of[fake] = node_map[node]
        copied._sizes.copy_from(self._sizes, node_map)

    # --- blocks (block_recorder.py) -------------------------------------------------------------------

    def local(self, value: torch.Tensor) -> torch.Tensor:
        """The value that code being recorded reads for a variable; inside a block, that of the block."""
        return value

    def add_call(self, target: Any, args: Sequence[Any], name: str) -> fx.Node:
        """Add a node for a target that the dispatcher does not know; the caller binds its results."""
        node = self.graph.create_node("call_function", target, tuple(_mapped(self._argument, args)), {}, name)
        self._created(node)
        node.meta = self._meta(self._line())
        return node

    def bind_results(self, node: fx.Node, results: tuple[torch.Tensor, ...]) -> None:
        """Bind the results of a node of `add_call`."""
        node.meta["val"] = results
        self._bind_result(results, node)

    @contextmanager
    def in_role(self, role: str) -> Iterator[None]:
        """Nodes recorded inside have this role."""
        assert role in ROLES, f"role {role!r} is not one of {ROLES}"
        old, self.role = self.role, role
        try:
            yield
        finally:
            self.role = old

    @contextmanager
    def in_call(self, number: int) -> Iterator[None]:
        """Nodes recorded inside belong to this call."""
        old, self.call = self.call, number
        try:
            yield
        finally:
            self.call = old

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        """Nodes recorded inside have this tag in their meta, and so have the nodes of their gradients."""
        old, self._tag = self._tag, tag
        try:
            yield
        finally:
            self._tag = old

    @contextmanager
    def in_period(self, name: str, *, unless: bool = False) -> Iterator[None]:
        """Nodes recorded inside run only when this period of the program is due, or (`unless`) when it is not."""
        assert not self._period, f"period {name!r} inside of {self._period!r}"
        self._period = in_period(name, unless=unless)
        try:
            yield
        finally:
            self._period = {}

    def placeholder(self, name: str, value: torch.Tensor) -> fx.Node:
        """Add an input of the program: a feed or a variable of the scope."""
        with self.graph.inserting_after(self._last_placeholder()):
            node = self.graph.placeholder(_identifier(name))
        node.meta = {"val": value, "role": "forward", "source": user_line()}
        self.placeholder_of[value] = node
        self.bind(value, node)
        return node

    def rebind(self, old: fx.Node, new: fx.Node) -> None:
        """Bind the values of `old` to `new`."""
        for fake, entry in list(self.node_of.items()):
            if entry is old:
                self.node_of[fake] = new

    def erase(self, node: fx.Node) -> None:
        """Erase a node without users."""
        for fake in [value for value, entry in self.node_of.items() if entry is node]:
            del self.node_of[fake]
        self._sizes.forget(node)
        if node.op == "get_attr":
            self.constants.pop(str(node.target), None)
        self.graph.erase_node(node)

    @contextmanager
    def recording_aliases(self) -> Iterator[None]:
        """Record `aten.alias` as a node; otherwise an alias is bound to the node of its source."""
        self._records_aliases = True
        try:
            yield
        finally:
            self._records_aliases = False

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Undo what was recorded inside if an error is raised; a nested attempt is part of the outer one."""
        if self._undo_log is not None:
            yield
            return
        self._undo_log = []
        try:
            yield
        except BaseException:
            self._undo(self._undo_log)
            raise
        finally:
            self._undo_log = None

    def _undo(self, log: list[tuple[torch.Tensor | None, Any]]) -> None:
        for value, entry in reversed(log):
            if value is None:
                self._sizes.forget_dimensions(entry)
                self.erase(entry)
            elif entry is None:
                self.node_of.pop(value, None)
            else:
                self.node_of[value] = entry

    def _created(self, node: fx.Node) -> None:
        if self._undo_log is not None:
            self._undo_log.append((None, node))

    def _set_node(self, value: torch.Tensor, entry: Any) -> None:
        if self._undo_log is not None:
            self._undo_log.append((value, self.node_of.get(value)))
        self.node_of[value] = entry

    def bind(self, value: torch.Tensor, node: fx.Node) -> None:
        """Bind a fake tensor to the node that computes it."""
        self._set_node(value, node)
        self._sizes.bind(value, node)

    def node(self, value: torch.Tensor) -> fx.Node:
        """The node that computes this value; a real tensor becomes a constant of the program."""
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
        self._created(item)
        self._set_node(value, item)
        return item

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "profiler":
            return func(*args, **kwargs)  # torch.profiler.record_function, as around optimizer.step()
        if func is _DEVICE and isinstance(args[0], FakeTensor):
            return func(
                *args
            )  # the most frequent call: shape functions read the device of each of their inputs
        is_alias = func in _ALIASES and not self._records_aliases
        if is_alias and isinstance(args[0], FakeTensor) and args[0] in self.node_of:
            return self._alias(func, args)
        process_effects.install("fake-tensor-log", _silence_fake_tensors)
        line = self._line()
        args, kwargs = _mapped(self._constant_as_fake, (args, kwargs))
        if func is aten.lift_fresh.default:
            func = aten.clone.default  # torch.tensor(…) in recorded code: a new tensor in every run
        if func is aten._local_scalar_dense.default and args[0] in self.node_of:
            constant = value_of_constant(self.node(args[0]), self.constants)
            if constant is not None:
                with _disable_current_modes():
                    return constant.item()
        if func._schema.is_mutable:
            self._check_mutated(func, args, kwargs)
        with self.symbols.env.in_kernel():
            out = fake_result(func, args, kwargs, self.symbols.mode)
        # tensor.item(): a number that is known at run time, unless it is known already
        is_number = func is aten._local_scalar_dense.default and isinstance(out, SymbolicSize)
        if not _makes_tensors(out) and func._schema.returns and not is_number:
            return out  # a property of a tensor, such as its device
        if isinstance(out, torch.Tensor) and out.layout is not torch.strided:
            raise ProgramError(
                f"{func._opname} at {line} returns a sparse tensor, which cannot be recorded; use dense tensors"
            )
        node_args, node_kwargs = _mapped(self._argument, (args, kwargs))
        node = self.graph.create_node("call_function", func, node_args, node_kwargs, func._opname)
        self._created(node)
        node.meta = {"val": out, **self._meta(line)}
        self._bind_result(out, node)
        return out

    def replay(self, target: Any, args: Any, kwargs: Any, meta: dict[str, Any], name: str) -> fx.Node:
        """Add a node for this call; its value comes from running the op on the values of its inputs.

        The caller has entered the modes of `Program.replaying`.
        """
        node = self.graph.create_node("call_function", target, args, kwargs, name)
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        if isinstance(target, BlockCall):
            target = node.target = target.refreshed(args)
        old, self.symbols.env.context = (
            self.symbols.env.context,
            lambda: (meta.get("source"), "forward", None),
        )
        try:
            with self.symbols.env.in_kernel():
                out = fake_result(target, args, kwargs, self.symbols.mode)
        finally:
            self.symbols.env.context = old
        node.meta = {**meta, "val": out}
        self._bind_result(out, node)
        return node

    def _constant_as_fake(self, value: Any) -> Any:
        """The fake tensor of a real one, so that its views share a storage."""
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            node = self.node(value)
            self._set_node(node.meta["val"], node)
            return node.meta["val"]
        return value

    def _check_mutated(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise if an op mutates a constant: whether the next run sees the change would depend on passes."""
        for place, argument in enumerate(func._schema.arguments):
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            is_mutated = argument.alias_info is not None and argument.alias_info.is_write
            if is_mutated and isinstance(value, FakeTensor) and _memory(value) in self._memory_of_constants:
                raise ProgramError(
                    f"{func._opname} writes into a tensor of shape {list(value.shape)}, a constant of the program; "
                    "make it a buffer (register_buffer), or work on a copy (clone)"
                )

    def _alias(self, func: OpOverload, args: tuple[Any, ...]) -> Any:
        if func is aten.lift_fresh.default:
            return args[0]  # the result of torch.full
        out = func(*args)
        self._set_node(out, self.node_of[args[0]])
        return out

    def _meta(self, line: SourceLine | None) -> dict[str, Any]:
        meta: dict[str, Any] = {"role": self.role, "source": line}
        if self.call is not None:
            meta["call"] = self.call
        if tag := self._current_tag():
            meta["tag"] = tag
        meta |= self._period
        return meta

    def _current_tag(self) -> str:
        current = torch._C._current_autograd_node()
        if current is not None:
            return self._tags.get(current._sequence_nr(), "")
        if self._tag and self.role == "forward":
            self._tags[torch.autograd._get_sequence_nr() - 1] = self._tag
        return self._tag

    def _bind_result(self, out: Any, node: fx.Node) -> None:
        if isinstance(out, torch.Tensor):
            self.bind(out, node)
        elif isinstance(out, SymbolicSize):
            self._sizes.bind_size(out, node)
        elif isinstance(out, tuple | list):
            for index, part in enumerate(out):
                if isinstance(part, torch.Tensor):
                    self._set_node(part, (node, index))

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.node(value)
        if isinstance(value, SymbolicSize):
            return self._sizes.node(value)
        return value

    def _constant(self, value: torch.Tensor) -> fx.Node:
        if isinstance(value, FakeTensor):
            raise ProgramError(
                f"a tensor of shape {tuple(value.shape)} belongs to another program, or was computed inside a branch "
                "or a loop; build all of a program under one program_guard, and return from a branch what is read "
                "after it"
            )
        with _disable_current_modes():
            node = self.constant(value.detach().clone(memory_format=torch.contiguous_format))
        self._set_node(value, node)
        self._versions[value] = value._version
        return node

    def constant(self, value: torch.Tensor) -> fx.Node:
        """Add a constant that refers to this tensor itself, without a copy: a run reads its value at that time."""
        name = f"constant_{len(self.constants)}"
        self.constants[name] = value
        with _disable_current_modes():
            fake = self.symbols.mode.from_tensor(value.detach(), static_shapes=True)
        with self.graph.inserting_after(self._last_placeholder()):
            node = self.graph.create_node("get_attr", name, (), {}, name=name)
        self._created(node)
        node.meta = {"val": fake, "role": "forward", "source": self._line()}
        self._set_node(fake, node)
        self._memory_of_constants.add(_memory(fake))
        return node

    def _last_placeholder(self) -> fx.Node:
        """The last of the placeholders and constants at the head of the graph, or the graph's root."""
        node = self._last_input
        if node is None or node._erased or node.op not in _INPUTS or node.graph is not self.graph:
            node = self.graph._root
        while node.next.op in _INPUTS:
            node = node.next
        self._last_input = node
        return node

    def _context(self) -> tuple[SourceLine | None, str, int | None]:
        return self._line(), self.role, self.call

    def _line(self) -> SourceLine | None:
        """The user's source line; in backward, that of the forward operator whose formula is running."""
        current = torch._C._current_autograd_node()
        if current is not None:
            return self._lines.get(current._sequence_nr())
        line = user_line()
        if self.role == "forward":
            # Autograd numbered the formula of this operator just before it dispatched to this mode.
            self._lines.setdefault(torch.autograd._get_sequence_nr() - 1, line)
        return line


def _mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply the function to each argument of an op; pytree's tree_map is ten times as slow."""
    if isinstance(tree, tuple | list):
        return type(tree)([_mapped(function, part) for part in tree])
    if isinstance(tree, dict):
        return {key: _mapped(function, part) for key, part in tree.items()}
    return function(tree)


def _memory(value: torch.Tensor) -> int:
    return int(value.untyped_storage()._cdata)


def _makes_tensors(out: Any) -> bool:
    return isinstance(out, torch.Tensor) or (isinstance(out, tuple | list) and any(map(_makes_tensors, out)))


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def _silence_fake_tensors() -> process_effects.Undo:
    """torch logs a page for every op that rejects its inputs; the error that Argosy raises says the same in a line."""
    fake_tensor_log = logging.getLogger("torch._subclasses.fake_tensor")
    before = fake_tensor_log.level
    fake_tensor_log.setLevel(logging.CRITICAL)
    return lambda: fake_tensor_log.setLevel(before)

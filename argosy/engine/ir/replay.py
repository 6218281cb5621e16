"""Replay a forward program with new size symbols, and record its torch modules in evaluation mode.

    nodes of Argosy's layers    the same op on the new values
    nodes of a recorded call    the call recorded in evaluation mode (recorded_call.py)

The new program shares no symbols with the old one, so assumptions about sizes that only training makes (a batch norm
needs more than one value per channel) do not apply to it.
"""

# SPDX-License-Identifier: Apache-2.0
import copy
import operator
from typing import Any

import sympy
import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_flatten

from argosy.engine.errors import ArgosyError, ProgramError
from argosy.engine.ir.build_errors import why
from argosy.engine.ir.program import Program
from argosy.engine.ir.ragged import ROWS_HINT, lengths_of, set_lengths
from argosy.engine.ir.recorded_call import RecordedCall
from argosy.engine.ir.variable import Variable
from argosy.engine.ir.verify import describe

_SIZES = (torch.SymInt, torch.SymFloat, torch.SymBool)


def replay(program: Program) -> Program:
    """The program for evaluation; raises ProgramError if a call returns something incompatible in that mode."""
    return _Replay(program).run()


class _Replay:
    def __init__(self, old: Program) -> None:
        self.old = old
        self.new = Program(old.name)
        self.new.copy_attachments(old)
        self.new.recorder.has_history = False
        self.new.recorder.constants = dict(old.recorder.constants)
        self.nodes: dict[fx.Node, fx.Node] = {}
        self.calls: set[int] = set()
        self.placeholders = {
            old.recorder.placeholder_of[v.value]: v
            for v in old.vars.values()
            if v.value in old.recorder.placeholder_of
        }

    def run(self) -> Program:
        nodes = list(self.old.graph.nodes)
        inputs = [node for node in nodes if node.op != "call_function"]
        for node in inputs:
            self._input(node)
        self._assume()
        for node in nodes:
            if node.op == "call_function":
                self._node(node)
        for variable in self.old.vars.values():
            self._variable(variable)
        for variable in self.old.vars.values():
            self._set_lengths(variable)
        self.new.touch()
        return self.new

    def _input(self, node: fx.Node) -> None:
        symbols, value = self.new.symbols, node.meta["val"]
        if node.op == "placeholder":
            variable = self.placeholders.get(node)
            shape = [size if isinstance(size, int) else None for size in value.shape]
            hint = {"first_hint": ROWS_HINT} if variable is not None and variable.lod_level else {}
            fake = symbols.fake(node.name if variable is None else variable.name, shape, value.dtype, **hint)
        else:
            fake = symbols.mode.from_tensor(
                self.old.recorder.constants[str(node.target)].detach(), static_shapes=True
            )
        copied = self.new.graph.node_copy(node)
        copied.meta = {**node.meta, "val": fake}
        if node.op == "placeholder":
            self.new.recorder.placeholder_of[fake] = copied
        self.new.recorder.bind(fake, copied)
        self.nodes[node] = copied

    def _set_lengths(self, variable: Variable) -> None:
        """Make the new variable ragged if the old one is."""
        lengths, new = lengths_of(variable), self.new.vars.get(variable.name)
        if lengths is not None and new is not None and lengths.name in self.new.vars:
            set_lengths(self.new, new.value.shape[0], self.new.vars[lengths.name])

    # --- sizes ----------------------------------------------------------------------------------------

    def _assume(self) -> None:
        """Carry over the assumptions about sizes that were made outside of recorded calls."""
        translated = self._symbols()
        for assumption in self.old.symbols.assumptions:
            is_forward = assumption.is_required and assumption.role == "forward" and assumption.call is None
            condition = assumption.condition.xreplace(translated)
            if not (is_forward or assumption.is_replacement) or not condition.free_symbols <= set(
                translated.values()
            ):
                continue
            if not self.new.symbols.env.assume(condition, assumption.line):
                raise ProgramError(
                    f"{self.old.name} was built for {self.new.symbols.describe(condition)}, which no size satisfies"
                )

    def _symbols(self) -> dict[sympy.Symbol, sympy.Symbol]:
        new_symbol = {place: symbol for symbol, place in self.new.symbols.origin.items()}
        return {s: new_symbol[place] for s, place in self.old.symbols.origin.items() if place in new_symbol}

    # --- nodes ----------------------------------------------------------------------------------------

    def _node(self, node: fx.Node) -> None:
        call = self.old.recorder.calls.get(node.meta.get("call", -1))
        if call is None or call.evaluate is None:
            self._copy(node)
            return
        if node.meta["call"] not in self.calls:
            self.calls.add(node.meta["call"])
            self._evaluate(call, node)
        is_size = isinstance(node.meta.get("val"), _SIZES)  # other nodes may use the size too
        if node not in self.nodes and is_size and all(n in self.nodes for n in node.all_input_nodes):
            self._copy(node)

    def _copy(self, node: fx.Node) -> None:
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: self._at(n, node))
        meta = {key: value for key, value in node.meta.items() if key != "val"}
        try:
            with self.new.replaying():
                self.nodes[node] = self.new.recorder.replay(node.target, args, kwargs, meta, node.name)
        except ArgosyError:
            raise
        except Exception as e:
            raise ProgramError(f"{describe(node)} cannot be evaluated: {why(e, self.new.symbols)}") from e

    def _at(self, node: fx.Node, reader: fx.Node) -> fx.Node:
        if node not in self.nodes and node.target is operator.getitem and node.args[0] in self.nodes:
            self._item(node)
        if node in self.nodes:
            return self.nodes[node]
        call = self.old.recorder.calls[node.meta["call"]]
        raise ProgramError(
            f"{describe(reader)} reads {describe(node)}, a value inside of {call.what} that does not exist in "
            "evaluation mode; return it from the module, or build a program for testing with the module in eval()"
        )

    def _item(self, node: fx.Node) -> None:
        """Map a getitem inside of a call; reuse the new program's getitem if evaluation has recorded one."""
        users = self.nodes[node.args[0]].users  # type: ignore[index]  # an item of a node
        known = [u for u in users if u.target is operator.getitem and u.args[1] == node.args[1]]
        if known:
            self.nodes[node] = known[0]
        else:
            self._copy(node)

    # --- calls ----------------------------------------------------------------------------------------

    def _evaluate(self, call: RecordedCall, first: fx.Node) -> None:
        """Record the call in evaluation mode; map the old results and mutated inputs to the new ones."""
        assert call.evaluate is not None, f"{call.what} was recorded for evaluation"
        recorder = self.new.recorder
        inputs = {id(fake): self._value(self._at(node, first)) for fake, node in call.inputs}
        last = self.new.graph._root.prev
        try:
            with self.new.recording(), torch.no_grad(), recorder.in_call(first.meta["call"]):
                result = call.evaluate(lambda value: inputs.get(id(value), value))
        except ArgosyError as e:
            raise type(e)(f"{call.what}, in evaluation mode: {e}") from e
        except Exception as e:
            raise ProgramError(f"{call.what} cannot be evaluated: {why(e, self.new.symbols)}") from e
        self._match(call, result)
        for (fake, _), node in zip(call.inputs, call.after, strict=True):
            self.nodes.setdefault(node, recorder.node(inputs[id(fake)]))
        self._match_inside(first.meta["call"], last)

    @staticmethod
    def _value(node: fx.Node) -> torch.Tensor:
        value = node.meta["val"]
        assert isinstance(value, torch.Tensor), f"{node.name} is no tensor but {value!r}"
        return value

    def _match(self, call: RecordedCall, result: Any) -> None:
        """Map the results of training to those of evaluation; raise ProgramError if they are incompatible."""
        old, old_spec = tree_flatten(call.result)
        new, new_spec = tree_flatten(result)
        if old_spec != new_spec:
            raise ProgramError(
                f"{call.what} returns something else in training, {call.shown(_shape, call.result)}, than in "
                f"evaluation, {call.shown(_shape, result)}, so the one cannot replace the other; {_ADVICE}"
            )
        for before, after in zip(old, new, strict=True):
            if isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor):
                if not self._have_same_type(before, after):
                    raise ProgramError(
                        f"{call.what} returns {_shape(before)} in training and {_shape(after)} in evaluation, so the "
                        f"one cannot replace the other; {_ADVICE}"
                    )
                entry = self.old.recorder.node_of.get(before)
                if entry is not None:
                    self.nodes[self.old.recorder.node(before)] = self.new.recorder.node(after)
            elif not self._is_same(before, after):
                raise ProgramError(
                    f"{call.what} returns {_shape(before)} in training and {_shape(after)} in evaluation, and code "
                    f"after it may have used that; {_ADVICE}"
                )

    def _have_same_type(self, before: torch.Tensor, after: torch.Tensor) -> bool:
        if before.dtype != after.dtype or before.ndim != after.ndim:
            return False
        return all(self._is_same(old, new) for old, new in zip(before.shape, after.shape, strict=True))

    def _is_same(self, before: Any, after: Any) -> bool:
        """True for equal numbers, and for symbolic sizes that are equal in the new program."""
        if isinstance(before, _SIZES) or isinstance(after, _SIZES):
            env = self.new.symbols.env
            old = before.node.expr.xreplace(self._symbols()) if isinstance(before, _SIZES) else before
            new = after.node.expr if isinstance(after, _SIZES) else after
            return bool(env.replace(sympy.sympify(old)) == env.replace(sympy.sympify(new)))
        if isinstance(before, torch.Tensor) or isinstance(after, torch.Tensor):
            return False
        return before is after or bool(before == after)

    def _match_inside(self, number: int, last: fx.Node) -> None:
        """If evaluation records the same ops, map the values inside of the call too."""
        old = [n for n in self.old.graph.nodes if n.meta.get("call") == number and _is_op(n)]
        new = []
        node = last.next
        while node.op != "root":
            if _is_op(node):
                new.append(node)
            node = node.next
        if [n.target for n in old] == [n.target for n in new]:
            for before, after in zip(old, new, strict=True):
                self.nodes.setdefault(before, after)

    # --- variables ------------------------------------------------------------------------------------

    def _variable(self, variable: Variable) -> None:
        recorder = self.new.recorder
        entry = self.old.recorder.node_of.get(variable.value)
        node, index = entry if isinstance(entry, tuple) else (entry, None)
        if node not in self.nodes:
            return  # inside of a call, or only in training
        new = self.nodes[node]
        placeholder = self.old.recorder.placeholder_of.get(variable.value)
        value = self.nodes[placeholder].meta["val"] if placeholder in self.nodes else new.meta["val"]
        value = value if index is None else value[index]
        if self.new.variable_of(value) is not None:  # two names for one value, such as x and x.detach()
            with self.new.symbols.mode, torch.no_grad():
                value = value.detach()
        recorder.node_of[value] = new if index is None else (new, index)
        copied = copy.copy(variable)
        copied.program, copied.value, copied.sizes = self.new, value, self._translated(variable.sizes)
        self.new.register(copied)

    def _translated(self, sizes: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        if sizes is None:
            return None
        env, symbols = self.new.symbols.env, self._symbols()
        return tuple(
            size
            if isinstance(size, int)
            else env.create_symintnode(size.node.expr.xreplace(symbols), hint=None)
            for size in sizes
        )


_ADVICE = (
    "call the module in eval() mode in a separate Program for testing: it has the same variables there, and reads the "
    "trained values"
)


def _is_op(node: fx.Node) -> bool:
    return node.op == "call_function" and isinstance(node.target, OpOverload)


def _shape(tree: Any) -> str:
    if isinstance(tree, torch.Tensor):
        sizes = ", ".join(str(s) if isinstance(s, int) else "any" for s in tree.shape)
        return f"{str(tree.dtype).removeprefix('torch.')}[{sizes}]"
    if isinstance(tree, tuple | list):
        return f"({', '.join(map(_shape, tree))})"
    if isinstance(tree, dict):
        return f"{{{', '.join(f'{key!r}: {_shape(value)}' for key, value in tree.items())}}}"
    return "another size" if isinstance(tree, _SIZES) else repr(tree)

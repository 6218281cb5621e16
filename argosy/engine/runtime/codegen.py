"""Generate one plain Python function from a list of nodes, which runs them in order.

    def step(x, y, w):
        relu = aten_relu(x)
        mm = aten_mm(relu, w); del relu
        return (mm,)

One line per node, so that a line number in a traceback identifies the node. A value is deleted on the line of its
last use, so that its memory can be reused by the next nodes. For a timeline each line reads the clock before and after:

        t = now(); relu = aten_relu(x); record((0, t, now()))

An op with `takes_list` gets its arguments in a list, and frees them itself.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from argosy.engine.ir.blocks import BlockCall
from argosy.engine.ops.op_spec import OpSpec
from argosy.engine.runtime.safe_kernels import SAFE

_FILE = "<argosy step>"

Span = tuple[int, int, int]
"""When a node ran: its index in Step.nodes, begin and end by time.perf_counter_ns()."""


@dataclass(frozen=True)
class Step:
    """A compiled list of nodes."""

    function: Callable[..., tuple[Any, ...]]
    code: str
    nodes: tuple[fx.Node, ...]
    """The nodes, in the order of their lines."""

    def node_of(self, error: BaseException) -> fx.Node | None:
        """The node that was running when the error was raised."""
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == _FILE:
                line = trace.tb_lineno - 2  # line 1 is the def
                return self.nodes[line] if 0 <= line < len(self.nodes) else None
            trace = trace.tb_next
        return None


def generate(
    inputs: Sequence[fx.Node],
    nodes: Sequence[fx.Node],
    outputs: Sequence[fx.Node],
    constants: dict[str, torch.Tensor],
    check: Callable[[int, Any], None] | None = None,
    record: Callable[[Span], None] | None = None,
) -> Step:
    """Generate and compile the function.

    `check(i, value)`, if given, is called with the value of every node i, `record((i, begin, end))` with its times.
    """
    writer = _Writer(constants)
    names = {node: f"v{i}" for i, node in enumerate((*inputs, *nodes))}
    dead_after = _dead_values(nodes, outputs)
    lines = []
    for i, node in enumerate(nodes):
        dead = [names[n] for n in dead_after.get(node, ())]
        line = f"{names[node]} = {writer.expression(node, names)}"
        if getattr(node.target, "takes_list", False):
            line, dead = _list_call(writer, node, names, dead)
        if record is not None:
            line = f"t = now(); {line}; record(({i}, t, now()))"
        if check is not None:
            line += f"; check({i}, {names[node]})"
        lines.append("    " + line + (f"; del {', '.join(dead)}" if dead else ""))
    head = f"def step({', '.join(names[n] for n in inputs)}):"
    tail = f"    return ({''.join(names[n] + ', ' for n in outputs)})"
    code = "\n".join([head, *lines, tail])
    namespace: dict[str, Any] = {
        **writer.bound,
        "check": check,
        "record": record,
        "now": time.perf_counter_ns,
    }
    exec(compile(code, _FILE, "exec"), namespace)
    return Step(namespace["step"], code, tuple(nodes))


def _dead_values(nodes: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> dict[fx.Node, list[fx.Node]]:
    """For each node the values that are dead after it, itself included if it has no users."""
    seen: set[fx.Node] = set(outputs)
    dead: dict[fx.Node, list[fx.Node]] = {}
    for node in reversed(nodes):
        values = [n for n in dict.fromkeys((*node.all_input_nodes, node)) if n not in seen]
        seen.update(values)
        if values:
            dead[node] = values
    return dead


def _list_call(
    writer: _Writer, node: fx.Node, names: dict[fx.Node, str], dead: list[str]
) -> tuple[str, list[str]]:
    """A call that gets its arguments in a list and empties it, so that dead arguments are freed during the call."""
    result = names[node]
    dead_inputs = [name for name in dead if name != result]
    freed = f"del {', '.join(dead_inputs)}; " if dead_inputs else ""
    called = f"{result} = {writer.bind(node.target)}(a)"
    inputs = ", ".join(names[n] for n in node.all_input_nodes)
    return f"a = [{inputs}]; {freed}{called}", dead[len(dead_inputs) :]


class _Writer:
    """Converts nodes to Python expressions; values without a literal are bound to names."""

    def __init__(self, constants: dict[str, torch.Tensor]) -> None:
        self.constants = constants
        self.bound: dict[str, Any] = {}
        self._names: dict[int, str] = {}

    def expression(self, node: fx.Node, names: dict[fx.Node, str]) -> str:
        if node.op == "get_attr":
            return self.bind(self.constants[str(node.target)])
        if node.target is operator.getitem:
            return f"{names[node.args[0]]}[{node.args[1]!r}]"  # type: ignore[index]  # an item of a node
        arguments = [self._literal(a, names) for a in node.args]
        arguments += [f"{key}={self._literal(a, names)}" for key, a in node.kwargs.items()]
        return f"{self.bind(kernel(node.target))}({', '.join(arguments)})"

    def _literal(self, value: Any, names: dict[fx.Node, str]) -> str:
        if isinstance(value, fx.Node):
            return names[value]
        if isinstance(value, list | tuple):
            inside = ", ".join(self._literal(v, names) for v in value)
            return f"[{inside}]"
        if value is None or isinstance(value, bool | int | str):
            return repr(value)
        return self.bind(value)

    def bind(self, value: Any) -> str:
        if id(value) not in self._names:
            name = getattr(value, "__name__", "") or type(value).__name__
            name = f"{''.join(c if c.isalnum() else '_' for c in name)}_{len(self.bound)}"
            self._names[id(value)] = name
            self.bound[name] = value
        return self._names[id(value)]


def kernel(target: Any) -> Callable[..., Any]:
    """The function to call for an op: Argosy's kernel directly, ATen's without its Python wrapper."""
    if target in SAFE:
        return SAFE[target]
    if isinstance(target, OpOverload):
        spec = OpSpec.known.get(target)
        function: Callable[..., Any] = spec.kernel if spec is not None else target._op
        return function
    if isinstance(target, BlockCall):
        functions = [generate(b.inputs, b.nodes, b.outputs, {}).function for b in target.blocks]
        return lambda *args: target.execute(functions, args)
    return target  # type: ignore[no-any-return]  # operator.mul and the like

"""Verify the invariants of a program's graph; runs after every pass."""

# SPDX-License-Identifier: Apache-2.0
import operator
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from argosy.engine.errors import ProgramError
from argosy.engine.ir.blocks import Block, BlockCall, blocks_of
from argosy.engine.ir.effects import mutated_inputs, storage
from argosy.engine.ir.recorder import ROLES
from argosy.engine.ops.op_spec import OpSpec

_ARITHMETIC = (
    "getitem",
    "add",
    "sub",
    "mul",
    "floordiv",
    "truediv",
    "mod",
    "pow",
    "neg",
    "and_",
    "or_",
    "xor",
)
_COMPARISON = ("eq", "ne", "lt", "le", "gt", "ge")
OPERATOR_FUNCTIONS = {f"operator.{name}": getattr(operator, name) for name in _ARITHMETIC + _COMPARISON}
"""The functions of Python's operator module that a program may call: on sizes, and getitem."""
_PLAIN = frozenset(OPERATOR_FUNCTIONS.values())


def verify(graph: fx.Graph, constants: dict[str, Any] | None = None) -> None:
    """Raise ProgramError, with the node and the user's source line, unless the graph can run in order."""
    seen: set[fx.Node] = set()
    names: set[str] = set()
    for node in graph.nodes:
        for source in node.all_input_nodes:
            if source not in seen:
                raise ProgramError(f"{describe(node)} reads {source.name!r} before it is written")
        if node.name in names:
            raise ProgramError(f"{describe(node)}: two nodes have this name")
        if node.op not in ("placeholder", "get_attr", "call_function"):
            raise ProgramError(
                f"{describe(node)} is a {node.op}; a program has placeholders, constants and calls"
            )
        if node.op == "call_function" and not _is_known(node.target):
            raise ProgramError(
                f"{describe(node)} calls {node.target!r}, which is not an operator; record it as ATen ops"
            )
        if node.op == "get_attr" and constants is not None and node.target not in constants:
            raise ProgramError(f"{describe(node)}: there is no constant {node.target!r}")
        if node.meta.get("role") not in ROLES:
            raise ProgramError(
                f"{describe(node)} has role {node.meta.get('role')!r}; use one of {', '.join(ROLES)}"
            )
        if "val" not in node.meta and _gives_value(node):
            raise ProgramError(f"{describe(node)} has no meta 'val'; a pass must set the meta of its nodes")
        if problem := _problem(node):
            raise ProgramError(f"{describe(node)} calls {node.target}: {problem}")
        for block in blocks_of(node):
            verify(block.graph)
            _verify_block(node, block)
        seen.add(node)
        names.add(node.name)


def _verify_block(node: fx.Node, block: Block) -> None:
    """Raise unless a block is pure: passes treat the node as one op that returns new tensors."""
    memory = {storage(n) for n in block.inputs} - {None}
    for inner in block.nodes:
        if any(storage(source) in memory for source in mutated_inputs(inner)):
            raise ProgramError(
                f"{describe(node)}: {describe(inner)} writes into an input of its block; copy it before"
            )
    for output in block.outputs:
        if storage(output) in memory or not isinstance(output.meta.get("val"), torch.Tensor):
            raise ProgramError(
                f"{describe(node)}: result {output.name!r} of a block is not a new tensor: it aliases an input or "
                "another result; copy it"
            )
        memory.add(storage(output))


def _problem(node: fx.Node) -> str:
    """What the verifier of the node's op finds wrong with its arguments; "" if nothing, or if it has none."""
    spec = OpSpec.known.get(node.target)  # type: ignore[call-overload]  # any target is a valid key
    if spec is None or spec.verify is None:
        return ""
    schema = spec.target._schema.arguments
    values = {a.name: _value(value) for a, value in zip(schema, node.args, strict=False)}
    for argument in schema[len(node.args) :]:
        values[argument.name] = _value(node.kwargs.get(argument.name, argument.default_value))
    problem: str = spec.verify(values)
    return problem


def _value(argument: Any) -> Any:
    """The fake tensor of a node; fx.map_arg does the same, but slowly."""
    if isinstance(argument, fx.Node):
        return argument.meta.get("val")
    return [_value(part) for part in argument] if isinstance(argument, list | tuple) else argument


def describe(node: fx.Node) -> str:
    """'relu_3 (train.py:41 in net)': for messages."""
    line = node.meta.get("source")
    return f"{node.name} ({line})" if line else node.name


def _is_known(target: Any) -> bool:
    return (
        isinstance(target, OpOverload | BlockCall)
        or target in _PLAIN
        or getattr(target, "__module__", "") in ("math", "torch")
    )


def _gives_value(node: fx.Node) -> bool:
    return not isinstance(node.target, OpOverload) or bool(node.target._schema.returns)

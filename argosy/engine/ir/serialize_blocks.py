"""Blocks of branches and loops as plain data, a part of the record of their node (serialize.py).

    {"kind": "Branch", "name": "cond", "numbers": {"saves_state": false, …},
     "blocks": [{"nodes": [records, placeholders first], "outputs": [names]}, …]}

The nodes of a block are checked like those of a program: only known ops, no constants of their own. Nothing is
executed.
"""

# SPDX-License-Identifier: Apache-2.0
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from argosy.engine.errors import ProgramError
from argosy.engine.ir.allowed_ops import check_saved
from argosy.engine.ir.block_recorder import contiguous_fake
from argosy.engine.ir.blocks import Block, BlockCall, Branch, Loop, LoopGradient
from argosy.engine.ir.program import Program
from argosy.engine.ir.recorder import Recorder

KINDS: dict[str, type[BlockCall]] = {"Branch": Branch, "Loop": Loop, "LoopGradient": LoopGradient}
NodeRecord = Callable[[fx.Node], dict[str, Any]]
AddNode = Callable[[Program, dict[str, Any], dict[str, fx.Node], dict[str, Any]], fx.Node]


def blocks_record(target: BlockCall, node_record: NodeRecord) -> dict[str, Any]:
    """A target as data; `node_record` makes those of the nodes."""
    return {
        "kind": type(target).__name__,
        "name": target.name,
        "numbers": {name: getattr(target, name) for name in _numbers(type(target))},
        "blocks": [
            {"nodes": [node_record(n) for n in block.graph.nodes], "outputs": [n.name for n in block.outputs]}
            for block in target.blocks
        ],
    }


def _numbers(kind: type[BlockCall]) -> list[str]:
    return [f.name for f in dataclasses.fields(kind) if f.name not in ("name", "blocks")]


def target_of(program: Program, record: dict[str, Any], args: Sequence[Any], add_node: AddNode) -> BlockCall:
    """The target of a record, for a node with these arguments: fake tensors and sizes."""
    kind, name = KINDS.get(record["kind"]), record["name"]
    if kind is None or not isinstance(name, str) or not name.isidentifier():
        raise ProgramError(
            f"{record['kind']!r} named {name!r} is not a branch or a loop; save the program again"
        )
    numbers = {key: _number(value) for key, value in record["numbers"].items()}
    if list(numbers) != _numbers(kind):
        raise ProgramError(
            f"{kind.__name__} has the numbers {', '.join(_numbers(kind))}, and not {list(numbers)}"
        )
    target = kind(name, tuple(Block(fx.Graph(), (), ()) for _ in record["blocks"]), **numbers)
    if len(target.blocks) not in ((1, 2) if kind is Branch else (1,) if kind is Loop else (2,)):
        raise ProgramError(f"{kind.__name__} has {len(target.blocks)} blocks; save the program again")
    inputs = [
        contiguous_fake(value, program.symbols) if isinstance(value, torch.Tensor) else value
        for value in target.inputs(args)
    ]
    return target.with_blocks([_block(program, block, inputs, add_node) for block in record["blocks"]])


def _number(value: Any) -> Any:
    values = tuple(value) if isinstance(value, list) else value
    if isinstance(values, bool | int) or (isinstance(values, tuple) and all(type(v) is int for v in values)):
        return values
    raise ProgramError(f"{value!r} is not a number of a branch or a loop; save the program again")


def _block(program: Program, record: dict[str, Any], inputs: list[Any], add_node: AddNode) -> Block:
    """A block, recorded into a graph of its own."""
    placeholders = [n["name"] for n in record["nodes"] if n["op"] == "placeholder"]
    if len(placeholders) != len(inputs) or any(n["op"] == "get_attr" for n in record["nodes"]):
        raise ProgramError(
            f"a block has {len(placeholders)} placeholders for {len(inputs)} inputs, or constants"
        )
    graph, recorder, context = program.graph, program.recorder, program.symbols.env.context
    nodes: dict[str, fx.Node] = {}
    try:
        program.graph = fx.Graph()
        program.recorder = Recorder(program.graph, program.symbols)
        values = dict(zip(placeholders, inputs, strict=True))
        for node in record["nodes"]:
            nodes[node["name"]] = add_node(program, node, nodes, values)
        check_saved(program.graph)
        outputs = tuple(nodes[name] for name in record["outputs"])
        return Block(program.graph, tuple(nodes[name] for name in placeholders), outputs)
    finally:
        program.graph, program.recorder, program.symbols.env.context = graph, recorder, context

"""Recorded blocks become the blocks of a node: results that alias nothing, one list of inputs, no dead nodes."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from argosy.engine.errors import ProgramError
from argosy.engine.ir.block_recorder import BlockRecorder, contiguous_fake, extending_block
from argosy.engine.ir.blocks import Block
from argosy.engine.ir.effects import has_side_effects, is_collective, is_random, live_nodes
from argosy.engine.ir.program import Program
from argosy.engine.ir.symbols import are_equal
from argosy.engine.ir.verify import describe
from argosy.engine.ops.tensor_array import is_array


@dataclass(frozen=True)
class RecordedBlock:
    """A recorded block and its results: new contiguous tensors of the block."""

    recorder: BlockRecorder
    outputs: list[torch.Tensor]
    is_derivative: bool = False
    """True: its forward nodes are recomputed, and those that act outside of the program must not run again."""


def recorded(program: Program, block: BlockRecorder, results: Sequence[torch.Tensor]) -> RecordedBlock:
    """Finish a block; results that alias an input or each other, or are not contiguous, are copied."""
    inputs = {_memory(c.local) for c in block.captures if isinstance(c.local, torch.Tensor)}
    outputs: list[torch.Tensor] = []
    with extending_block(program, block), program.recording():
        for result in results:
            value = block.local(result)
            if not is_array(value) and (_memory(value) in inputs or not _is_contiguous(value)):
                value = value.clone(memory_format=torch.contiguous_format)
            inputs.add(_memory(value))
            outputs.append(value)
    block.check_leaves(outputs)
    for node in block.graph.nodes:
        call = block.calls.get(node.meta.pop("call", -1))
        if call is not None and call.evaluate is not None:
            node.meta["is_training"] = True  # in evaluation mode its code would record something else
        if is_collective(node):
            raise ProgramError(
                f"{describe(node)} is a collective inside a branch or a loop, where other ranks may not take part; "
                "move it out of the branch"
            )
    return RecordedBlock(block, outputs)


def _memory(value: torch.Tensor) -> int:
    return int(value.untyped_storage()._cdata)


def _is_contiguous(value: torch.Tensor) -> bool:
    """True if it is for every feed; without adding assumptions."""
    expected: Any = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if not (are_equal([size], [1]) or are_equal([stride], [expected])):
            return False
        expected = expected * size
    return True


# --- assembling ---------------------------------------------------------------------------------------


def assemble(
    parts: Sequence[RecordedBlock], first: Sequence[Any] = (), last: Sequence[Any] = ()
) -> tuple[list[Any], list[Block]]:
    """The inputs of a node with these blocks, and the blocks, each with a placeholder for every input.

    Inputs are values of the enclosing program: `first`, what any of the blocks reads, `last`.
    """
    fixed = {id(source) for source in (*first, *last)}
    middle: dict[Any, Any] = {}
    for part in parts:
        live = set(_live(part))
        for capture in part.recorder.captures:
            if capture.node in live and id(capture.source) not in fixed:
                middle.setdefault(_key(capture.source), capture.source)
    sources = [*first, *middle.values(), *last]
    return sources, [_block(part, sources) for part in parts]


def _key(source: Any) -> Any:
    return id(source) if isinstance(source, torch.Tensor) else source.node.expr


def _live(part: RecordedBlock) -> list[fx.Node]:
    """The live nodes; all random ones are, so that forward and backward draw the same numbers."""
    graph = part.recorder.graph
    wanted = {part.recorder.node(value) for value in part.outputs} | set(filter(is_random, graph.nodes))
    acting = [n for n in graph.nodes if has_side_effects(n)]
    wanted.update(n for n in acting if not part.is_derivative or n.meta["role"] == "backward")
    live = live_nodes(graph, wanted, with_updates=False)
    for node in acting:
        if node not in wanted and node in live:
            raise ProgramError(
                f"{describe(node)} acts outside of the program, and backward would run it again: it is inside a branch "
                "that is differentiated; move it out of the branch"
            )
    return live


def _block(part: RecordedBlock, sources: Sequence[Any]) -> Block:
    """The live nodes of a recorded block in a new graph, with an input for each source."""
    outputs = [part.recorder.node(value) for value in part.outputs]
    live = _live(part)
    by_source: dict[Any, list[fx.Node]] = {}
    for capture in part.recorder.captures:
        by_source.setdefault(_key(capture.source), []).append(capture.node)
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    inputs = []
    for source in sources:
        known = by_source.get(_key(source), [])
        node = graph.placeholder(known[0].name if known else "unused")
        is_tensor = isinstance(source, torch.Tensor)
        value = contiguous_fake(source, part.recorder.symbols) if is_tensor else source
        node.meta = dict(known[0].meta) if known else {"val": value, "role": "forward", "source": None}
        copies |= dict.fromkeys(known, node)
        inputs.append(node)
    for node in live:
        if node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return Block(graph, tuple(inputs), tuple(copies[node] for node in outputs))

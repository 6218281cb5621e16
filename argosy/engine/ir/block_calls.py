"""Nodes that run blocks: added to the program, and differentiated.

    forward     out, … = cond(pred, inputs)
    backward    gradients = cond_grad(pred, inputs, gradients of out)

A backward block is the forward block with its derivative appended, as torch's autograd computes it on the block's own
graph: it recomputes what the derivative reads. A block with random ops repeats forward's numbers: the forward node
returns the state of the generator. The derivative of a loop runs the loop again and stores the carried values of every
iteration.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from argosy.engine.errors import ProgramError
from argosy.engine.ir.backward import autograd, differentiable_once, stopped
from argosy.engine.ir.block_assembly import RecordedBlock, assemble, recorded
from argosy.engine.ir.block_recorder import contiguous_fake, extending_block
from argosy.engine.ir.blocks import Block, BlockCall, Branch, Loop, LoopGradient, new_state
from argosy.engine.ir.effects import has_side_effects, is_random
from argosy.engine.ir.program import Program, recording_program
from argosy.engine.ir.verify import describe

# --- adding nodes -------------------------------------------------------------------------------------


@dataclass
class DifferentiableCall:
    """A node with blocks, and what its derivative needs."""

    target: BlockCall
    parts: list[RecordedBlock]
    sources: list[Any]
    outputs: list[torch.Tensor]
    """The types of its results."""
    condition: torch.Tensor | None = None
    state: torch.Tensor | None = None
    """The state of the random generator, a result of the node."""
    actual: dict[int, torch.Tensor] = field(default_factory=dict)
    """By the id of a source: the value that the node reads instead, as in a step of a recurrent network."""

    def arguments(self, sources: Sequence[Any]) -> list[Any]:
        return [self.actual.get(id(source), source) for source in sources]

    def tensors(self) -> list[torch.Tensor]:
        return [source for source in self.arguments(self.sources) if isinstance(source, torch.Tensor)]

    def wanted(self) -> list[torch.Tensor]:
        """The sources that gradients flow to."""
        sources = [source for source in self.sources if isinstance(source, torch.Tensor)]
        return [s for s, t in zip(sources, self.tensors(), strict=True) if _is_differentiable(t)]


def _is_differentiable(value: torch.Tensor) -> bool:
    return value.requires_grad and value.dtype.is_floating_point


def add_branch(
    program: Program, name: str, condition: torch.Tensor | None, parts: list[RecordedBlock]
) -> list[torch.Tensor]:
    """Add a node that runs one of the blocks; returns its results."""
    sources, blocks = assemble(parts)
    saves_state = _is_random_call(blocks) and any(map(_is_differentiable, _tensors(sources)))
    target = Branch(name, tuple(blocks), saves_state=saves_state)
    return _add(program, DifferentiableCall(target, parts, sources, parts[0].outputs, condition))


def add_steps(
    program: Program,
    name: str,
    part: RecordedBlock,
    steps: Sequence[dict[int, torch.Tensor]],
    carried: dict[int, int],
) -> list[list[torch.Tensor]]:
    """Add a node for each step of a recurrent network; returns the results of each.

    `steps`: by id of a value that the block reads, its value in this step. `carried`: by id of a value that the block
    reads, the number of the result of the previous step that replaces it.
    """
    sources, blocks = assemble([part])
    target = Branch(name, tuple(blocks), saves_state=_is_random_call(blocks))
    results: list[list[torch.Tensor]] = []
    for step in steps:
        last = {key: results[-1][number] for key, number in carried.items()} if results else {}
        results.append(
            _add(program, DifferentiableCall(target, [part], sources, part.outputs, actual=step | last))
        )
    return results


def _is_random_call(blocks: Sequence[Block]) -> bool:
    return any(is_random(node) for block in blocks for node in block.graph.nodes)


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    return [value for value in values if isinstance(value, torch.Tensor)]


def add_loop(
    program: Program, name: str, carried: Sequence[torch.Tensor], part: RecordedBlock
) -> list[torch.Tensor]:
    """Add a node that runs the block while the first of the carried values is true; returns the last ones."""
    sources, blocks = assemble([part], first=carried)
    return _add(
        program, DifferentiableCall(Loop(name, tuple(blocks), len(carried)), [part], sources, part.outputs)
    )


def _add(program: Program, call: DifferentiableCall) -> list[torch.Tensor]:
    """Add the node in forward, as one operation of autograd."""
    with program.recording():
        results = _BlockFunction.apply(call, *call.tensors())  # type: ignore[no-untyped-call]
        call.state = results[-1] if getattr(call.target, "saves_state", False) else None
        recorder = program.recorder
        leading = [] if call.condition is None else [call.condition]
        arguments = [*leading, *call.arguments(call.sources)]
        node = recorder.add_call(call.target, arguments, call.target.name)
        recorder.bind_results(node, tuple(results))
    return list(results[: len(call.outputs)])


_SECOND = "the second derivative of a branch or a loop is not supported; differentiate it once"


class _BlockFunction(torch.autograd.Function):
    """A node with blocks as an operation of autograd: its results have no data, so there is nothing to compute."""

    @staticmethod
    def forward(ctx: Any, call: DifferentiableCall, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.call = call
        ctx.set_materialize_grads(False)
        symbols = call.parts[0].recorder.symbols
        results = [contiguous_fake(value, symbols) for value in call.outputs]
        if isinstance(call.target, Loop):  # a later iteration may make any float depend on an input
            fixed = [r for r in results if not r.dtype.is_floating_point]
        else:
            columns = zip(*(part.outputs for part in call.parts), strict=True)
            fixed = [r for r, c in zip(results, columns, strict=True) if not any(v.requires_grad for v in c)]
        if getattr(call.target, "saves_state", False):
            with _disable_current_modes(), symbols.mode:
                results.append(new_state())
            fixed.append(results[-1])
        ctx.mark_non_differentiable(*fixed)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        call: DifferentiableCall = ctx.call
        _check_versions(call)
        program = recording_program()
        present = {i: g for i, g in enumerate(gradients[: len(call.outputs)]) if g is not None}
        wanted = call.wanted()
        if isinstance(call.target, Loop):
            computed = _loop_gradient(program, call, present, wanted)
        else:
            computed = _branch_gradient(program, call, present, wanted)
        if torch.is_grad_enabled():
            computed = [differentiable_once(g, call.tensors(), _SECOND) for g in computed]
        by_source = dict(zip(map(id, wanted), computed, strict=True))
        return None, *(by_source.get(id(source)) for source in _tensors(call.sources))


def _check_versions(call: DifferentiableCall) -> None:
    for part in call.parts:
        for capture in part.recorder.captures:
            if isinstance(capture.source, torch.Tensor) and capture.source._version != capture.version:
                raise ProgramError(
                    f"a tensor of shape {list(capture.source.shape)} that {call.target.name} reads is modified in "
                    "place afterwards, so that its gradient cannot be computed; assign to another variable"
                )


# --- derivatives --------------------------------------------------------------------------------------


def _branch_gradient(
    program: Program, call: DifferentiableCall, seeds: dict[int, torch.Tensor], wanted: list[torch.Tensor]
) -> list[torch.Tensor]:
    parts = [_derivative(program, part, seeds, wanted) for part in call.parts]
    sources, blocks = assemble(parts)
    target = Branch(f"{call.target.name}_grad", tuple(blocks), takes_state=call.state is not None)
    leading = [call.condition, call.state]
    return _add_backward(program, target, leading, call.arguments(sources), parts[0].outputs)


def _loop_gradient(
    program: Program, call: DifferentiableCall, seeds: dict[int, torch.Tensor], wanted: list[torch.Tensor]
) -> list[torch.Tensor]:
    assert isinstance(call.target, Loop), f"{call.target.name} is no loop"
    for node in call.target.blocks[0].nodes:
        if is_random(node) or has_side_effects(node):
            raise ProgramError(
                f"{describe(node)} inside a loop is random or acts outside of the program, and backward would run it "
                "again; move it out of the loop, or set stop_gradient on what the loop reads"
            )
    carried = call.sources[: call.target.num_carried]
    seeded = [i for i, value in enumerate(call.outputs) if value.dtype.is_floating_point]
    with torch.no_grad():
        given = {i: seeds[i] if i in seeds else torch.zeros_like(carried[i]) for i in seeded}
    given = {i: g.clone() for i, g in given.items()}  # distinct inputs, even if two gradients are one tensor
    captured = [s for s in wanted if all(s is not value for value in carried)]
    differentiated = [*(carried[i] for i in seeded), *captured]
    part = _derivative(program, call.parts[0], given, differentiated)
    sources, blocks = assemble([call.parts[0], part], first=carried, last=list(given.values()))
    places = tuple(next(i for i, s in enumerate(sources) if s is value) for value in captured)
    target = LoopGradient(
        f"{call.target.name}_grad", tuple(blocks), call.target.num_carried, tuple(seeded), places
    )
    results = _add_backward(program, target, [], sources, part.outputs)
    by_source = dict(zip(map(id, differentiated), results, strict=True))
    return [by_source[id(source)] for source in wanted]


def _derivative(
    program: Program, part: RecordedBlock, seeds: dict[int, torch.Tensor], wanted: Sequence[torch.Tensor]
) -> RecordedBlock:
    """A block that computes the gradients of these inputs, from those of the results."""
    block = part.recorder.copy_block(program.recorder)
    leaf_of = {id(c.source): c.local for c in block.captures}
    leaves = [leaf_of.get(id(source)) for source in wanted]
    with _disable_current_modes(), extending_block(program, block), program.recording("backward"):
        pairs = [
            (part.outputs[i], block.capture(seed, is_differentiable=False))
            for i, seed in seeds.items()
            if part.outputs[i].requires_grad
        ]
        read = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
        computed: list[torch.Tensor | None] = [None] * len(read)
        if pairs and read:
            outs, gradients = [out for out, _ in pairs], [gradient for _, gradient in pairs]
            with stopped(part.recorder.variables, ()):
                computed = list(autograd(outs, read, gradients, create_graph=False))
        by_leaf = {id(leaf): g for leaf, g in zip(read, computed, strict=True) if g is not None}
        results = [
            by_leaf[id(leaf)] if leaf is not None and id(leaf) in by_leaf else _zeros(source)
            for leaf, source in zip(leaves, wanted, strict=True)
        ]
    with _disable_current_modes():
        return replace(recorded(program, block, results), is_derivative=True)


def _zeros(source: torch.Tensor) -> torch.Tensor:
    return torch.zeros(source.shape, dtype=source.dtype, device=source.device)


def _add_backward(
    program: Program,
    target: BlockCall,
    leading: Sequence[torch.Tensor | None],
    sources: Sequence[Any],
    outputs: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    recorder = program.recorder
    arguments = [*(value for value in leading if value is not None), *sources]
    node = recorder.add_call(target, arguments, target.name)
    results = tuple(contiguous_fake(value, recorder.symbols) for value in outputs)
    recorder.bind_results(node, results)
    return list(results)

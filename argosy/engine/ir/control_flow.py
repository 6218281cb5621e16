"""Branches and loops on Variables: what their blocks return, and what they write to variables outside."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir.block_assembly import recorded
from argosy.engine.ir.block_calls import add_branch, add_loop
from argosy.engine.ir.block_recorder import BlockRecorder
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.program import Program
from argosy.engine.ir.symbols import are_equal
from argosy.engine.ir.variable import Variable

Values = Sequence[torch.Tensor]


def add_branches(
    program: Program,
    name: str,
    condition: Variable | None,
    blocks: Sequence[tuple[str, BlockRecorder, Values]],
) -> list[torch.Tensor]:
    """Add a node that runs one of the blocks, each with its name for messages and its results; returns its results.

    A variable that any of them writes has its new value afterwards.
    """
    written = _written([block for _, block, _ in blocks])
    columns = []
    for where, block, results in blocks:
        after = [block.local(variable.value) for variable in written]
        for variable, value in zip(written, after, strict=True):
            check_same_type(
                f"{name}: variable {variable.name!r}", variable.value, value, "before", f"in {where}"
            )
        columns.append([*map(block.local, results), *after])
    for number, values in enumerate(zip(*columns, strict=True)):
        for (where, _, _), value in zip(blocks, values, strict=True):
            check_same_type(f"{name}: result {number}", values[0], value, f"in {blocks[0][0]}", f"in {where}")
    parts = [recorded(program, block, column) for (_, block, _), column in zip(blocks, columns, strict=True)]
    chosen = None if condition is None else program.recorder.local(condition.value)
    outputs = add_branch(program, name, chosen, parts)
    count = len(outputs) - len(written)
    for variable, value in zip(written, outputs[count:], strict=True):
        program.write(variable, value)
    return outputs[:count]


def add_while(
    program: Program,
    name: str,
    condition: tuple[Variable, torch.Tensor],
    variables: Sequence[Variable],
    block: BlockRecorder,
) -> list[torch.Tensor]:
    """Add a node that runs the block while a condition is true; returns the last values of `variables`.

    `condition`: a variable, and its value after the block. `variables`: what is carried besides; they keep their
    values. Other variables that the block writes have their last value afterwards, the condition too.
    """
    carried = {id(variable.value) for variable in variables}
    others = [v for v in _written([block]) if id(v.value) not in carried and v is not condition[0]]
    everything = [*variables, *others]
    after = [block.local(variable.value) for variable in everything]
    for variable, value in zip(everything, after, strict=True):
        check_same_type(
            f"{name}: variable {variable.name!r}", variable.value, value, "before", "after an iteration"
        )
    first = [program.recorder.local(v.value) for v in (condition[0], *everything)]
    if len(set(map(id, first))) < len(first):
        raise ConfigError(
            f"{name}: two variables that the loop changes have one value; assign one of them a copy"
        )
    part = recorded(program, block, [condition[1], *after])
    is_false, *last = add_loop(program, name, first, part)
    if id(condition[0].value) in block.written:
        program.write(condition[0], is_false)
    for variable, value in zip(others, last[len(variables) :], strict=True):
        program.write(variable, value)
    return last[: len(variables)]


def _written(blocks: Sequence[BlockRecorder]) -> list[Variable]:
    return list({key: variable for block in blocks for key, (variable, _) in block.written.items()}.values())


def check_same_type(what: str, first: torch.Tensor, other: torch.Tensor, here: str, there: str) -> None:
    """Raise ConfigError unless both have the same dtype, and the same shape for every feed."""
    if first.dtype != other.dtype or not are_equal(first.shape, other.shape):
        raise ConfigError(
            f"{what} is {_kind(first)} {here} and {_kind(other)} {there}; they must have the same dtype and shape"
        )


def _kind(value: torch.Tensor) -> str:
    sizes = ", ".join(str(size) if isinstance(size, int) else "any" for size in value.shape)
    return f"{dtype_name(value.dtype)}[{sizes}]"

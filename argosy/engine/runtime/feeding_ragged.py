"""Split fed LoDTensors into rows and companions: the lengths of the sequences, the positions up to the longest."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from argosy.engine.data.lod_tensor import LoDTensor, concatenated
from argosy.engine.errors import DataError, FeedError
from argosy.engine.ir.program import Program
from argosy.engine.ir.ragged import LENGTHS, POSITIONS, aligned_feeds


class Parts(list[Any]):
    """The values of one name in a list of feeds; concatenated along the first dimension."""


def with_companions(program: Program, fed: Mapping[str, Any]) -> Mapping[str, Any]:
    """The feeds with rows instead of LoDTensors, and with the companions of ragged ones."""
    if not program.symbols.ragged and not any(isinstance(v, LoDTensor) for v in fed.values()):
        return fed
    values: dict[str, Any] = {}
    for name, value in fed.items():
        tensor = _concatenated(name, value) if isinstance(value, Parts) else value
        if isinstance(tensor, LoDTensor):
            values[name] = tensor.rows
            values |= _companions(program, name, tensor)
        else:
            values[name] = tensor
    _check_aligned(program, values)
    return values


def _companions(program: Program, name: str, tensor: LoDTensor) -> dict[str, torch.Tensor]:
    feed = program.vars.get(name)
    level = feed.lod_level if feed is not None and feed.is_data else 0
    if level == 0:
        return {}  # a dense feed: as in Paddle, the lengths have no effect
    if len(tensor.offsets) != level or (problem := tensor.problem()):
        difference = f"{len(tensor.offsets)} levels" if len(tensor.offsets) != level else problem
        raise FeedError(
            f"feed {name!r} is a variable of lod_level {level}, and the fed LoDTensor has {difference}; "
            "give the lengths of its sequences: fluid.create_lod_tensor(rows, [lengths], place)"
        )
    values: dict[str, torch.Tensor] = {}
    base = name
    for lengths in reversed(tensor.lengths()):
        values[base + LENGTHS] = torch.from_numpy(lengths)
        if base + POSITIONS in program.vars:
            values[base + POSITIONS] = torch.arange(int(lengths.max(initial=0)))
        base += LENGTHS
    return values


def _concatenated(name: str, parts: Parts) -> Any:
    if not any(isinstance(part, LoDTensor) for part in parts):
        return parts
    try:
        return concatenated(parts)
    except (AttributeError, DataError, RuntimeError, ValueError) as e:
        raise FeedError(
            f"feed {name!r}: its {len(parts)} parts cannot be concatenated: {e}; give LoDTensors with the same number "
            "of levels, dtype and shape of a row"
        ) from e


def _check_aligned(program: Program, values: Mapping[str, Any]) -> None:
    """Raise if feeds whose rows the program combines have sequences of different lengths."""
    for names in aligned_feeds(program.symbols):
        fed = [name for name in names if name in values]
        for other in fed[1:]:
            if not torch.equal(torch.as_tensor(values[fed[0]]), torch.as_tensor(values[other])):
                shown = ", ".join(
                    f"{name.removesuffix(LENGTHS)!r} the lengths {np.asarray(values[name])[:8].tolist()}"
                    for name in (fed[0], other)
                )
                raise FeedError(
                    f"the program combines the rows of two feeds, and their sequences differ: {shown}; feed "
                    "sequences of the same lengths"
                )

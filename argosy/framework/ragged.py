"""What the layers on ragged Variables share: their lengths, and index arithmetic on rows and lengths.

    lengths [2, 0, 3]     starts [0, 2, 2]     segments [0, 0, 2, 2, 2]     places [0, 1, 0, 1, 2]

`segments` has the number of the sequence of each row, `places` the index of the row in it.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.ragged import all_lengths_of, set_lengths
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply


def lengths_for(layer: str, x: Variable, level: int = -1) -> Variable:
    """The lengths of the sequences of x at a level; raises ConfigError if x is not ragged."""
    levels = all_lengths_of(x) if isinstance(x, Variable) else []
    if not -len(levels) <= level < len(levels):
        kind = f"{x.name!r} ({dtype_name(x.dtype)}{list(x.shape)})" if isinstance(x, Variable) else repr(x)
        missing = "no sequences" if not levels else f"{len(levels)} levels of sequences, and no level {level}"
        raise ConfigError(
            f"{layer}: {kind} has {missing}; declare its feed with lod_level=1, and use values that have one row for "
            "each row of it"
        )
    return levels[level]


def apply_ragged(
    layer: str, function: Callable[..., tuple[Tensor, Tensor]], *args: Any, name: str | None = None
) -> Any:
    """Run a function that returns rows and the lengths of their sequences: a ragged Variable."""
    rows, lengths = apply(layer, function, *args, name=name)
    set_lengths(rows.program, rows.value.shape[0], lengths)
    return rows


def starts(lengths: Tensor) -> Tensor:
    """The index of the first row of each sequence."""
    return lengths.cumsum(0) - lengths


def segments(lengths: Tensor, rows: Any = None) -> Tensor:
    """The number of the sequence of each row; without `rows`, their number depends on data."""
    return torch.repeat_interleave(lengths, output_size=rows)


def places(lengths: Tensor, segment: Tensor) -> Tensor:
    """The index of each row in its sequence."""
    return torch.arange(segment.shape[0]) - starts(lengths)[segment]


def rows_or(x: Tensor, index: Tensor, is_valid: Tensor, otherwise: Tensor) -> Tensor:
    """The rows of x at the indices of any shape, and the row `otherwise` where one is not valid."""
    extended = torch.cat([x, otherwise.to(x.dtype).expand(1, *x.shape[1:])])
    chosen = torch.where(is_valid, index, x.shape[0]).flatten()
    return extended.index_select(0, chosen).reshape(*index.shape, *x.shape[1:])


def sums(x: Tensor, lengths: Tensor, segment: Tensor) -> Tensor:
    """The sum of the rows of each sequence; its gradient is an index_select, which segment_reduce's is not."""
    return x.new_zeros(lengths.shape[0], *x.shape[1:]).index_add(0, segment, x)


def constant_row(x: Tensor, value: float) -> Tensor:
    """A row of x's shape and dtype with all elements `value`."""
    return torch.full(x.shape[1:], value, dtype=x.dtype)


def check_batch(x: Tensor, lengths: Tensor) -> None:
    """Require that x has a row for each sequence."""
    torch._check(x.shape[0] == lengths.shape[0], lambda: "a row is needed for each sequence")

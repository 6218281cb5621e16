"""Layers that reduce or normalize each sequence: sequence_pool, its first and last step, sequence_softmax."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.framework.ragged import constant_row, lengths_for, rows_or, segments, starts, sums

POOL_TYPES = ("sum", "average", "sqrt", "max", "last", "first")


def sequence_pool(input: Variable, pool_type: str, is_test: bool = False, pad_value: float = 0.0) -> Any:
    """One row for each sequence: the sum, average, sum / sqrt(length), maximum, last or first of its rows.

    A sequence without rows gives `pad_value`. `is_test` has no effect.
    """
    kind = str(pool_type).lower()
    if kind not in POOL_TYPES:
        raise ConfigError(
            f"sequence_pool: pool_type={pool_type!r} is not known; use one of {', '.join(POOL_TYPES)}"
        )
    lengths = lengths_for("sequence_pool", input)

    def pool(x: Tensor, lengths: Tensor) -> Tensor:
        if kind in ("first", "last"):
            index = starts(lengths) if kind == "first" else lengths.cumsum(0) - 1
            return rows_or(x, index, lengths > 0, constant_row(x, pad_value))
        counts = lengths.reshape(-1, *[1] * (x.ndim - 1))
        if kind == "max":
            reduced = torch.segment_reduce(x, "max", lengths=lengths)
        else:
            reduced = sums(x, lengths, segments(lengths, x.shape[0]))
        if kind in ("average", "sqrt"):
            divisor = counts.clamp(min=1).to(x.dtype)
            reduced = reduced / (divisor if kind == "average" else divisor.sqrt())
        if kind != "max" and pad_value == 0.0:
            return reduced  # an empty sum is 0
        return torch.where(counts > 0, reduced, pad_value)

    return apply("sequence_pool", pool, input, lengths)


def sequence_first_step(input: Variable) -> Any:
    """The first row of each sequence; zeros for a sequence without rows."""
    return sequence_pool(input, "first")


def sequence_last_step(input: Variable) -> Any:
    """The last row of each sequence; zeros for a sequence without rows."""
    return sequence_pool(input, "last")


def sequence_softmax(input: Variable, use_cudnn: bool = False, name: str | None = None) -> Any:
    """The softmax over the rows of each sequence, [T, 1] or [T]. `use_cudnn` has no effect."""
    lengths = lengths_for("sequence_softmax", input)
    if input.ndim > 2 or input.shape[1:] not in ((), (1,)):
        raise ConfigError(
            f"sequence_softmax: {input.name!r} has shape {list(input.shape)}; it must have one number for each row"
        )

    def softmax(x: Tensor, lengths: Tensor) -> Tensor:
        segment = segments(lengths, x.shape[0])
        greatest = torch.segment_reduce(x.detach(), "max", lengths=lengths)
        raised = torch.exp(x - greatest.index_select(0, segment))
        total = sums(raised, lengths, segment)
        return raised / total.index_select(0, segment)

    return apply("sequence_softmax", softmax, input, lengths, name=name)

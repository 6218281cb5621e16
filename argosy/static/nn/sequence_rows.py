"""Layers that repeat, reorder, join or cut the rows of sequences."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.ragged import lengths_of, rows_of_lengths
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.framework.ragged import apply_ragged, check_batch, lengths_for, places, segments, starts


def sequence_expand(x: Variable, y: Variable, ref_level: int = -1, name: str | None = None) -> Any:
    """Repeat row i of x (if x is ragged: sequence i) as often as sequence i of y's level `ref_level` is long."""
    counts = lengths_for("sequence_expand", y, ref_level)
    lengths = lengths_of(x)
    if lengths is None:
        return apply("sequence_expand", _repeat(rows_of_lengths(counts)), x, counts, name=name)
    if x.lod_level > 1:
        raise ConfigError(
            f"sequence_expand: x has {x.lod_level} levels of sequences; it may have one, or none"
        )

    def repeat(x: Tensor, lengths: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        check_batch(lengths, counts)
        source = segments(counts)
        repeated = lengths[source]
        segment = segments(repeated)
        index = starts(lengths)[source][segment] + places(repeated, segment)
        return x.index_select(0, index), repeated

    return apply_ragged("sequence_expand", repeat, x, lengths, counts, name=name)


def sequence_expand_as(x: Variable, y: Variable, name: str | None = None) -> Any:
    """Repeat row i of x as often as sequence i of y is long."""
    counts = lengths_for("sequence_expand_as", y)
    return apply("sequence_expand_as", _repeat(y.value.shape[0]), x, counts, name=name)


def _repeat(rows: Any) -> Any:
    def repeat(x: Tensor, counts: Tensor) -> Tensor:
        check_batch(x, counts)
        return x.index_select(0, segments(counts, rows))

    return repeat


def sequence_concat(input: Sequence[Variable], name: str | None = None) -> Any:
    """Sequence i of the result is sequence i of each input, one after the other."""
    if isinstance(input, Variable) or not input:
        raise ConfigError("sequence_concat: give a list of ragged variables")
    lengths = [lengths_for("sequence_concat", x) for x in input]
    for x in input:
        if x.lod_level > 1:
            raise ConfigError(f"sequence_concat: {x.name!r} has {x.lod_level} levels of sequences; use one")

    def concat(inputs: list[Tensor], all_lengths: list[Tensor]) -> tuple[Tensor, Tensor]:
        total = torch.stack(all_lengths).sum(0)
        rows, targets, before = torch.cat(inputs), [], starts(total)
        for x, lengths in zip(inputs, all_lengths, strict=True):
            segment = segments(lengths, x.shape[0])
            targets.append(before[segment] + places(lengths, segment))
            before = before + lengths
        order = torch.cat(targets)
        source = torch.zeros_like(order).scatter(0, order, torch.arange(rows.shape[0]))
        return rows.index_select(0, source), total

    return apply_ragged("sequence_concat", concat, list(input), lengths, name=name)


def sequence_reverse(x: Variable, name: str | None = None) -> Any:
    """The rows of each sequence in reverse order."""

    def reverse(x: Tensor, lengths: Tensor) -> Tensor:
        segment = segments(lengths, x.shape[0])
        last = (lengths.cumsum(0) - 1)[segment]
        return x.index_select(0, last - places(lengths, segment))

    return apply("sequence_reverse", reverse, x, lengths_for("sequence_reverse", x), name=name)


def sequence_reshape(input: Variable, new_dim: int) -> Any:
    """Rows of `new_dim` numbers: a sequence of n rows of D numbers has n · D / new_dim rows, which must be whole."""
    lengths, width = lengths_for("sequence_reshape", input), math.prod(input.shape[1:])
    if not isinstance(new_dim, int) or new_dim < 1 or input.ndim != 2:
        raise ConfigError(
            f"sequence_reshape: new_dim={new_dim!r}, input of shape {list(input.shape)}; give a positive number, and "
            "an input of two dimensions"
        )

    def reshape(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        numbers = lengths * width
        whole = numbers if width % new_dim == 0 else _require(numbers, numbers % new_dim == 0)
        return x.reshape(-1, new_dim), whole // new_dim

    return apply_ragged("sequence_reshape", reshape, input, lengths)


def sequence_slice(input: Variable, offset: Variable, length: Variable, name: str | None = None) -> Any:
    """Of each sequence i the length[i] rows from offset[i] on; both have shape [sequences, 1].

    Rows outside of the sequence are an error when the program runs.
    """

    def cut(x: Tensor, lengths: Tensor, offset: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        first, count = offset.reshape(-1).to(torch.int64), length.reshape(-1).to(torch.int64)
        check_batch(first, lengths)
        check_batch(count, lengths)
        count = _require(count, (first >= 0) & (count >= 0) & (first + count <= lengths))
        segment = segments(count)
        return x.index_select(0, (starts(lengths) + first)[segment] + places(count, segment)), count

    lengths = lengths_for("sequence_slice", input)
    return apply_ragged("sequence_slice", cut, input, lengths, offset, length, name=name)


def sequence_scatter(input: Variable, index: Variable, updates: Variable, name: str | None = None) -> Any:
    """Row i of the dense input, plus each of the updates of sequence i at its index."""
    lengths = lengths_for("sequence_scatter", index)
    lengths_for("sequence_scatter", updates)

    def scatter(x: Tensor, index: Tensor, updates: Tensor, lengths: Tensor) -> Tensor:
        check_batch(x, lengths)
        columns = index.reshape(-1).to(torch.int64)
        torch._check(updates.shape[0] == columns.shape[0], lambda: "an update is needed for each index")
        return x.index_put(
            (segments(lengths, columns.shape[0]), columns), updates.reshape(-1), accumulate=True
        )

    return apply("sequence_scatter", scatter, input, index, updates, lengths, name=name)


def lod_reset(x: Variable, y: Variable | None = None, target_lod: Sequence[int] | None = None) -> Any:
    """The rows of x with the sequences of y; if y is not ragged, its numbers are the offsets of the sequences."""
    if y is None:
        raise ConfigError(
            f"lod_reset: target_lod={target_lod!r} fixes the number of rows of every batch, which is not supported; "
            "give y, a ragged variable or one with the offsets"
        )
    lengths = lengths_of(y)
    if lengths is None:
        return apply_ragged("lod_reset", _by_offsets, x, y)

    def by_lengths(x: Tensor, y: Tensor, lengths: Tensor) -> Tensor:
        return _require_rows(x, lengths).index_select(0, torch.arange(y.shape[0]))

    return apply("lod_reset", by_lengths, x, y, lengths)


def _by_offsets(x: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    lengths = offsets.reshape(-1).to(torch.int64).diff()
    segment = segments(lengths)  # its size is a new symbol: that of x may have other lengths
    return _require_rows(x, lengths).index_select(0, torch.arange(segment.shape[0])), lengths


def _require_rows(x: Tensor, lengths: Tensor) -> Tensor:
    """x, unless the lengths do not sum up to its rows, which raises when the program runs."""
    return x.index_select(0, _require(torch.arange(x.shape[0]), lengths.sum() == x.shape[0]))


def _require(numbers: Tensor, condition: Tensor) -> Tensor:
    """Natural numbers; where the condition is False, -1, which raises as an index or a length when the program runs."""
    return torch.where(condition, numbers, -1)

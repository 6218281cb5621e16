"""Between ragged and padded: sequence_pad, sequence_unpad, sequence_mask."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.dtypes import to_dtype
from argosy.engine.ir.ragged import positions_of, rows_of_lengths
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.framework.ragged import apply_ragged, lengths_for, places, rows_or, segments, starts


def sequence_pad(x: Variable, pad_value: Any, maxlen: int | None = None, name: str | None = None) -> Any:
    """(padded [sequences, maxlen, …], lengths [sequences]); `pad_value` is one number, or has the shape of a row.

    Without `maxlen` (or -1), it is the length of the longest sequence. A longer sequence than `maxlen` is an error when
    it is fed.
    """
    lengths = lengths_for("sequence_pad", x)
    longest, columns = positions_of(lengths), None if maxlen in (None, -1) else maxlen
    if columns is not None and (not isinstance(columns, int) or columns < 1):
        raise ConfigError(f"sequence_pad: maxlen={maxlen!r}; give a positive number, or None")

    def pad(x: Tensor, lengths: Tensor, pad_value: Tensor, positions: Tensor | None) -> Tensor:
        positions = _positions(lengths, positions)
        if columns is not None:
            torch._check(positions.shape[0] <= columns, lambda: "a sequence is longer than maxlen")
            positions = torch.arange(columns) if longest is not None else _extended(positions, columns)
        index = starts(lengths).unsqueeze(1) + positions
        row = pad_value.reshape(x.shape[1:]) if pad_value.numel() > 1 else pad_value.reshape(())
        return rows_or(x, index, positions < lengths.unsqueeze(1), row)

    value = pad_value if isinstance(pad_value, Variable) else torch.as_tensor(pad_value, dtype=x.dtype)
    return apply("sequence_pad", pad, x, lengths, value, longest, name=name), lengths


def sequence_unpad(x: Variable, length: Variable, name: str | None = None) -> Any:
    """The first length[i] rows of each x[i], [sequences, maxlen, …]: the inverse of sequence_pad."""
    if x.ndim < 2:
        raise ConfigError(f"sequence_unpad: {x.name!r} has shape {list(x.shape)}; it needs [N, maxlen, …]")
    rows = rows_of_lengths(length)

    def unpad(x: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        lengths = length.reshape(-1).to(torch.int64)
        torch._check(x.shape[0] == lengths.shape[0], lambda: "a length is needed for each sequence")
        segment = segments(lengths, rows)
        place = places(lengths, segment)
        # A length beyond maxlen has an invalid index, so that it raises when the program runs.
        index = torch.where(place < x.shape[1], segment * x.shape[1] + place, x.shape[0] * x.shape[1])
        return x.flatten(0, 1).index_select(0, index), lengths

    if rows is not None:
        return apply("sequence_unpad", lambda x, length: unpad(x, length)[0], x, length, name=name)
    return apply_ragged("sequence_unpad", unpad, x, length, name=name)


def sequence_mask(
    x: Variable, maxlen: int | Variable | None = None, dtype: Any = "int64", name: str | None = None
) -> Any:
    """1 for each index below x, else 0: shape x.shape + [maxlen]; without `maxlen`, the greatest number in x."""
    wanted, known = to_dtype(dtype), None if isinstance(maxlen, Variable) else maxlen
    longest = maxlen if isinstance(maxlen, Variable) else positions_of(x) if maxlen is None else None

    def mask(x: Tensor, longest: Tensor | None) -> Tensor:
        if known is not None:
            positions = torch.arange(known)
        elif isinstance(maxlen, Variable):
            positions = torch.arange(longest.reshape(()).item())  # type: ignore[union-attr]  # it is maxlen
        else:
            positions = _positions(x, longest)
        return (positions < x.unsqueeze(-1)).to(wanted)

    return apply("sequence_mask", mask, x, longest, name=name)


def _extended(positions: Tensor, columns: int) -> Tensor:
    """0, 1, … up to `columns`; if there are more positions, the negative size raises when the program runs."""
    return torch.cat([positions, torch.arange(columns - positions.shape[0]) + positions.shape[0]])


def _positions(lengths: Tensor, positions: Tensor | None) -> Tensor:
    """0, 1, … up to the greatest length, which depends on data unless the feed's positions are known."""
    return torch.arange(lengths.max().item()) if positions is None else positions

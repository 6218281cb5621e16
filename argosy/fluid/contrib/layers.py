"""fluid.contrib.layers: sparse_embedding, partial_concat, partial_sum."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.framework.missing import missing
from argosy.static.nn import sparse_embedding

__all__ = ["partial_concat", "partial_sum", "sparse_embedding"]


def partial_concat(input: Variable | Sequence[Variable], start_index: int = 0, length: int = -1) -> Any:
    """The columns from start_index on, `length` of them (-1: all), of several matrices, side by side."""
    return apply(
        "partial_concat", lambda *parts: torch.cat(_cut(parts, start_index, length), 1), *_list(input)
    )


def partial_sum(input: Variable | Sequence[Variable], start_index: int = 0, length: int = -1) -> Any:
    """The sum of the columns from start_index on, `length` of them (-1: all), of several matrices."""
    return apply(
        "partial_sum", lambda *parts: torch.stack(_cut(parts, start_index, length)).sum(0), *_list(input)
    )


def _list(input: Variable | Sequence[Variable]) -> list[Variable]:
    return [input] if isinstance(input, Variable) else list(input)


def _cut(parts: Sequence[Tensor], start: int, length: int) -> list[Tensor]:
    end = None if length == -1 else start + length
    return [part[:, start:end] for part in parts]


__getattr__ = missing(__name__, globals())

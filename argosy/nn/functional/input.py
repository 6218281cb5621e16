"""one_hot and embedding."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Parameter, Variable
from argosy.framework.layer import apply
from argosy.tensor.arguments import number


def one_hot(x: Variable, num_classes: int, name: str | None = None) -> Any:
    """For each id a row of float32 zeros with a one at the id: shape x.shape + [num_classes].

    An id outside of 0 … num_classes - 1 is an error when the program runs.
    """
    classes = number("one_hot: num_classes", num_classes)

    def marked(x: torch.Tensor) -> torch.Tensor:
        places = x.long().unsqueeze(-1)
        return torch.zeros((*x.shape, classes)).scatter(-1, places, 1.0)

    return apply("one_hot", marked, x, name=name)


def embedding(
    x: Variable,
    weight: Variable,
    padding_idx: int | None = None,
    sparse: bool = False,
    name: str | None = None,
) -> Any:
    """Look up the rows of `weight` by id: shape x.shape + [row size].

    The row `padding_idx` (negative: from the end) is zeros and gets no gradient. With `sparse`
    the ranks all-gather only the rows of the gradient that were looked up, not the whole table; the result is the same.
    """
    if x.dtype not in (torch.int32, torch.int64):
        raise ConfigError(f"embedding: ids {x.name!r} are {x.dtype}; feed int64 (or int32)")
    rows = weight.shape[0]
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise ConfigError(
            f"embedding: padding_idx={padding_idx} is not one of {rows} rows; use {-rows} to {rows - 1}"
        )

    if sparse and isinstance(weight, Parameter):
        weight.is_sparse = True

    def looked_up(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        out = F.embedding(x, weight)
        if padding_idx is None:
            return out
        return out.masked_fill((x == padding_idx % rows).unsqueeze(-1), 0.0)

    return apply("embedding", looked_up, x, weight, name=name)

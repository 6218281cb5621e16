"""Indices of extremes, sorting, selection by condition."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.framework.variant import row
from argosy.tensor.arguments import chosen_dtype, no_scalar, number, one_axis


def where(condition: Variable, x: Any, y: Any, name: str | None = None) -> Any:
    """x where the condition is true, else y."""
    return apply("where", torch.where, condition, x, y, name=name)


def _index_of(
    kind: str,
    function: Callable[..., torch.Tensor],
    x: Variable,
    axis: int | None = None,
    keepdim: bool = False,
    dtype: Any = "int64",
    name: str | None = None,
) -> Any:
    wanted = chosen_dtype(dtype, torch.int64)
    if wanted not in (torch.int32, torch.int64):
        raise ConfigError(f"{kind}: dtype={dtype!r} cannot hold an index; use 'int32' or 'int64'")
    dim = None if axis is None else one_axis(kind, axis, x.ndim)
    return apply(kind, no_scalar(lambda x: function(x, dim, keepdim).to(wanted)), x, name=name)


_DOC = "The index of the {} element along `axis`; None: in x as one row."
argmax = row("argmax", _DOC.format("greatest"), _index_of, "arg_max", torch.argmax)
argmin = row("argmin", _DOC.format("smallest"), _index_of, "arg_min", torch.argmin)


def argsort(x: Variable, axis: int = -1, descending: bool = False, name: str | None = None) -> Any:
    """The indices that sort x along `axis`; equal elements keep their order."""
    return apply("argsort", torch.argsort, x, dim=axis, descending=descending, stable=True, name=name)


def sort(x: Variable, axis: int = -1, descending: bool = False, name: str | None = None) -> Any:
    """x sorted along `axis`."""
    return apply("sort", lambda x: torch.sort(x, axis, descending).values, x, name=name)


def topk(
    x: Variable,
    k: int,
    axis: int | None = None,
    largest: bool = True,
    sorted: bool = True,
    name: str | None = None,
) -> Any:
    """The k greatest (or smallest) elements along `axis`, None for the last, and their indices."""
    dim = one_axis("topk", -1 if axis is None else axis, x.ndim)
    top = apply("top_k", torch.topk, x, number("topk: k", k), dim, largest, sorted, name=name)
    return top[0], top[1]


def nonzero(x: Variable, as_tuple: bool = False) -> Any:
    """The indices of the non-zero elements: [n, ndim], or one [n, 1] for each dimension; n depends on the data."""
    if not as_tuple:
        return apply("where_index", torch.nonzero, x)
    return tuple(apply("where_index", lambda x: list(torch.split(torch.nonzero(x), 1, 1)), x))


def masked_select(x: Variable, mask: Variable, name: str | None = None) -> Any:
    """The elements of x where the mask is true, as one row; how many is known when it runs."""

    def selected(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        # torch.masked_select itself fixes the batch size while its fake tensor is made.
        return x.flatten().index_select(0, torch.nonzero(mask.expand_as(x).flatten()).squeeze(1))

    return apply("masked_select", selected, x, mask, name=name)


def index_select(x: Variable, index: Variable, axis: int = 0, name: str | None = None) -> Any:
    """The slices of x along `axis` that `index`, a vector, names."""
    return apply(
        "index_select", torch.index_select, x, one_axis("index_select", axis, x.ndim), index, name=name
    )


def index_sample(x: Variable, index: Variable) -> Any:
    """From each row of a matrix x the elements that the same row of `index` names."""
    return apply("index_sample", lambda x, index: torch.gather(x, 1, index.long()), x, index)

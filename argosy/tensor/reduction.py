"""Reductions: sums, means, extremes. A scalar has shape [1], as in Paddle 2.0."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import torch

from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.framework.variant import row
from argosy.tensor.arguments import Axes, axes, chosen_dtype, no_scalar


def _reduce(
    kind: str,
    function: Callable[..., torch.Tensor],
    x: Variable,
    axis: Axes = None,
    keepdim: bool = False,
    name: str | None = None,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    more = {} if dtype is None else {"dtype": dtype}
    return apply(kind, no_scalar(function), x, axes(kind, axis, x.ndim), keepdim, name=name, **more)


def _reduction(own_name: str, function: Callable[..., torch.Tensor], doc: str) -> Callable[..., Any]:
    return row(own_name, doc, _reduce, own_name, function)


mean = _reduction("mean", torch.mean, "The mean over `axis`, one or several, None for all.")
max = _reduction(
    "max",
    torch.amax,
    "The greatest element over `axis`; equal ones share the gradient (Paddle: each gets all of it).",
)
min = _reduction(
    "min",
    torch.amin,
    "The smallest element over `axis`; equal ones share the gradient (Paddle: each gets all of it).",
)
logsumexp = _reduction("logsumexp", torch.logsumexp, "log(sum(exp(x))) over `axis`, without overflow.")
all = _reduction("all", torch.all, "True if every element over `axis` is true.")
any = _reduction("any", torch.any, "True if some element over `axis` is true.")


def sum(
    x: Variable, axis: Axes = None, dtype: Any = None, keepdim: bool = False, name: str | None = None
) -> Any:
    """The sum over `axis`, one or several, None for all; integers and truth values add up to int64."""
    return _reduce(
        "sum", torch.sum, x, axis, keepdim, name, dtype=None if dtype is None else chosen_dtype(dtype)
    )


def prod(
    x: Variable, axis: Axes = None, keepdim: bool = False, dtype: Any = None, name: str | None = None
) -> Any:
    """The product over `axis`, one or several, None for all."""
    wanted = None if dtype is None else chosen_dtype(dtype)

    def product(x: torch.Tensor, over: list[int], keepdim: bool) -> torch.Tensor:
        for dim in sorted(over, reverse=True):
            x = torch.prod(x, dim, keepdim, dtype=wanted)
        return x

    return _reduce("prod", product, x, axis, keepdim, name)


def std(
    x: Variable, axis: Axes = None, unbiased: bool = True, keepdim: bool = False, name: str | None = None
) -> Any:
    """The standard deviation over `axis`; `unbiased` divides by n - 1."""

    def deviation(x: torch.Tensor, over: list[int], keepdim: bool) -> torch.Tensor:
        return torch.std(x, over, correction=int(unbiased), keepdim=keepdim)

    return _reduce("std", deviation, x, axis, keepdim, name)


def var(
    x: Variable, axis: Axes = None, unbiased: bool = True, keepdim: bool = False, name: str | None = None
) -> Any:
    """The variance over `axis`; `unbiased` divides by n - 1."""

    def variance(x: torch.Tensor, over: list[int], keepdim: bool) -> torch.Tensor:
        return torch.var(x, over, correction=int(unbiased), keepdim=keepdim)

    return _reduce("var", variance, x, axis, keepdim, name)


def median(x: Variable, axis: int | None = None, keepdim: bool = False, name: str | None = None) -> Any:
    """The middle element; of an even number of them the mean of the middle two (torch: the lower one)."""

    def middle(x: torch.Tensor, over: list[int], keepdim: bool) -> torch.Tensor:
        x = x if x.is_floating_point() else x.float()
        flat = x.movedim(over, tuple(range(-len(over), 0))).flatten(x.ndim - len(over))
        size = flat.shape[-1]
        ordered = torch.sort(flat, -1).values
        low, high = ordered.select(-1, (size - 1) // 2), ordered.select(-1, size // 2)
        out = torch.where(flat.isnan().any(-1), torch.nan, (low + high) / 2)
        for dim in over if keepdim else ():
            out = out.unsqueeze(dim)
        return out

    return _reduce("median", middle, x, axis, keepdim, name)


def numel(x: Variable, name: str | None = None) -> Any:
    """The number of elements of x at run time: int64 of shape [1]."""
    return apply("size", lambda x: torch.full((1,), x.numel(), dtype=torch.int64), x, name=name)

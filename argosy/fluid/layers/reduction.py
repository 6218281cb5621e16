"""Sums, means and extremes over dimensions; all of them (dim=None) give shape [1]."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any

from argosy.engine.ir import names
from argosy.engine.ir.variable import Variable
from argosy.framework.variant import row
from argosy.tensor import reduction

Dims = int | Sequence[int] | None


def reduce_sum(input: Variable, dim: Dims = None, keep_dim: bool = False, name: str | None = None) -> Any:
    """The sum over `dim`; integers keep their dtype."""
    dtype = None if input.dtype.is_floating_point else input.dtype
    return reduction.sum(input, _dims(dim), dtype, keep_dim, name or names.generate("reduce_sum"))


def _reduce(
    function: Callable[..., Any],
    kind: str,
    input: Variable,
    dim: Dims = None,
    keep_dim: bool = False,
    name: str | None = None,
) -> Any:
    return function(input, _dims(dim), keepdim=keep_dim, name=name or names.generate(kind))


reduce_mean = row("reduce_mean", "The mean over `dim`.", _reduce, reduction.mean, "reduce_mean")
reduce_max = row(
    "reduce_max",
    "The largest over `dim`; equal ones share the gradient.",
    _reduce,
    reduction.max,
    "reduce_max",
)
reduce_min = row(
    "reduce_min",
    "The smallest over `dim`; equal ones share the gradient.",
    _reduce,
    reduction.min,
    "reduce_min",
)
reduce_prod = row("reduce_prod", "The product over `dim`.", _reduce, reduction.prod, "reduce_prod")


def mean(x: Variable, name: str | None = None) -> Any:
    """The mean of all elements, shape [1]."""
    return reduction.mean(x, name=name)


def _dims(dim: Dims) -> Dims:
    return None if isinstance(dim, list | tuple) and not dim else dim

"""Sums, means and extremes over dimensions; all of them (dim=None) give shape [1]."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

from argosy.engine.ir import names
from argosy.engine.ir.variable import Variable
from argosy.tensor import reduction

Dims = int | Sequence[int] | None


def reduce_sum(input: Variable, dim: Dims = None, keep_dim: bool = False, name: str | None = None) -> Any:
    """The sum over `dim`; integers keep their dtype."""
    dtype = None if input.dtype.is_floating_point else input.dtype
    return reduction.sum(input, _dims(dim), dtype, keep_dim, name or names.generate("reduce_sum"))


def reduce_mean(input: Variable, dim: Dims = None, keep_dim: bool = False, name: str | None = None) -> Any:
    """The mean over `dim`."""
    return reduction.mean(input, _dims(dim), keep_dim, name or names.generate("reduce_mean"))


def reduce_max(input: Variable, dim: Dims = None, keep_dim: bool = False, name: str | None = None) -> Any:
    """The largest over `dim`; equal ones share the gradient."""
    return reduction.max(input, _dims(dim), keep_dim, name or names.generate("reduce_max"))


def reduce_min(input: Variable, dim: Dims = None, keep_dim: bool = False, name: str | None = None) -> Any:
    """The smallest over `dim`; equal ones share the gradient."""
    return reduction.min(input, _dims(dim), keep_dim, name or names.generate("reduce_min"))


def reduce_prod(input: Variable, dim: Dims = None, keep_dim: bool = False, name: str | None = None) -> Any:
    """The product over `dim`."""
    return reduction.prod(input, _dims(dim), keep_dim, name=name or names.generate("reduce_prod"))


def mean(x: Variable, name: str | None = None) -> Any:
    """The mean of all elements, shape [1]."""
    return reduction.mean(x, name=name)


def _dims(dim: Dims) -> Dims:
    return None if isinstance(dim, list | tuple) and not dim else dim

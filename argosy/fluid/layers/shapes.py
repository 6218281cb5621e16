"""Reshaping, slicing, indexing and searching, with the names and arguments of 1.x."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.variable import Variable
from argosy.fluid.input import spread
from argosy.framework.layer import LayerBuilder, apply
from argosy.tensor import manipulation, search
from argosy.tensor.arguments import number


def reshape(
    x: Variable,
    shape: Any,
    actual_shape: Any = None,
    act: str | None = None,
    inplace: bool = False,
    name: str | None = None,
) -> Any:
    """x in another shape: 0 copies the size of that dimension, one -1 is inferred.

    `actual_shape`, if given, takes precedence over `shape`.
    """
    layer = LayerBuilder("reshape2", name)
    wanted = shape if actual_shape is None else actual_shape
    return layer.activate(manipulation.reshape(x, wanted, layer.name), act)


def squeeze(input: Variable, axes: Sequence[int], name: str | None = None) -> Any:
    """The input without those of `axes` that have size 1; an empty list means all."""
    return manipulation.squeeze(input, list(axes) or None, name or names.generate("squeeze2"))


def unsqueeze(input: Variable, axes: int | Sequence[int], name: str | None = None) -> Any:
    """The input with new dimensions of size 1 at `axes`."""
    return manipulation.unsqueeze(input, axes, name or names.generate("unsqueeze2"))


def concat(input: Sequence[Variable], axis: int = 0, name: str | None = None) -> Any:
    """Concatenate variables along an axis."""
    return manipulation.concat(input, axis, name)


def split(input: Variable, num_or_sections: Any, dim: int = -1, name: str | None = None) -> list[Any]:
    """Split the input along `dim` into equal parts, or into parts of the given sizes, one of which may be -1."""
    return manipulation.split(input, num_or_sections, dim, name)


def expand(x: Variable, expand_times: Sequence[int], name: str | None = None) -> Any:
    """x repeated `expand_times` times along each dimension."""
    if len(expand_times) != x.ndim:
        raise ConfigError(
            f"expand: {len(expand_times)} times for {x.ndim} dimensions; give one number for each"
        )
    return manipulation.tile(x, expand_times, name or names.generate("expand"))


def flatten(x: Variable, axis: int = 1, name: str | None = None) -> Any:
    """x as a matrix: the dimensions before `axis` are its rows, the others its columns."""
    if not 0 <= axis <= x.ndim:
        raise ConfigError(f"flatten: axis={axis} of a variable with {x.ndim} dimensions; use 0 to {x.ndim}")

    def matrix(v: Tensor) -> Tensor:
        if axis == 0:
            return v.reshape(1, -1)
        return v.reshape(-1, 1) if axis == v.ndim else v.flatten(axis).flatten(0, axis - 1)

    return apply("flatten", matrix, x, name=name)


def pad(x: Variable, paddings: Sequence[int], pad_value: float = 0.0, name: str | None = None) -> Any:
    """x with pad_value around it; `paddings` is before and after the first dimension, then the second, …"""
    if len(paddings) != 2 * x.ndim:
        raise ConfigError(f"pad: {len(paddings)} paddings for {x.ndim} dimensions; give two for each")
    pairs = [tuple(paddings[i : i + 2]) for i in range(0, len(paddings), 2)]
    from_the_last = [size for pair in reversed(pairs) for size in pair]
    return apply("pad", F.pad, x, from_the_last, value=pad_value, name=name)


def gather(input: Variable, index: Variable, overwrite: bool = True) -> Any:
    """The rows that `index`, of shape [n] or [n, 1], selects; `overwrite` has no effect."""
    return manipulation.gather(input, index)


def scatter(
    input: Variable, index: Variable, updates: Variable, name: str | None = None, overwrite: bool = True
) -> Any:
    """The input with rows `index` replaced by `updates`; without `overwrite`, by the sum of their updates."""
    return manipulation.scatter(input, index, updates, overwrite, name)


def where(condition: Variable, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """The indices [n, dimensions] where the condition is true; given x and y, x there and y elsewhere."""
    if (x is None) != (y is None):
        raise ConfigError("where: one of x and y is missing; give both, or none for the indices")
    return search.nonzero(condition) if x is None else search.where(condition, x, y, name)


def topk(input: Variable, k: int, name: str | None = None) -> Any:
    """(the k largest entries of the last dimension, their indices)."""
    return search.topk(input, k, name=name)


def argmax(x: Variable, axis: int = 0) -> Any:
    """The index of the largest along `axis`, int64."""
    return search.argmax(x, axis)


def argmin(x: Variable, axis: int = 0) -> Any:
    """The index of the smallest along `axis`, int64."""
    return search.argmin(x, axis)


def one_hot(input: Variable, depth: int, allow_out_of_range: bool = False) -> Any:
    """For ids [N, 1] (or [N]) float32 [N, depth] with a 1 at each id.

    An id outside of 0 … depth - 1 fails, or gives zeros if allow_out_of_range.
    """

    # Read from the Variable: a comparison of a symbolic size would add a guard.
    ends_in_one, size = input.shape[-1] == 1, int(number("one_hot: depth", depth))

    def rows(ids: Tensor) -> Tensor:
        return spread(ids.squeeze(-1) if ends_in_one else ids, size, allow_out_of_range)

    return apply("one_hot", rows, input)

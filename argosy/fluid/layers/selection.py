"""Parts, order, distinct elements and random parts of variables, with the arguments of 1.x."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.dtypes import to_dtype
from argosy.engine.ir.variable import Variable
from argosy.fluid.layers.variables import gaussian_random, uniform_random
from argosy.framework.layer import apply
from argosy.tensor import creation, distinct, manipulation, reduction

# --- parts ------------------------------------------------------------------------------------------------------------


def gather_nd(input: Variable, index: Variable, name: str | None = None) -> Any:
    """The elements, or slices, of the input at the indices in the last axis of `index`."""
    return manipulation.gather_nd(input, index, name)


def scatter_nd_add(ref: Variable, index: Variable, updates: Variable, name: str | None = None) -> Any:
    """ref with `updates` added at the indices in the last axis of `index`."""
    return manipulation.scatter_nd_add(ref, index, updates, name)


def strided_slice(input: Variable, axes: Sequence[int], starts: Any, ends: Any, strides: Any) -> Any:
    """The part from `starts` to `ends` (not included) along `axes`, every `strides`-th element."""
    return manipulation.strided_slice(input, axes, starts, ends, strides)


def expand_as(x: Variable, target_tensor: Variable, name: str | None = None) -> Any:
    """x repeated to the shape of target_tensor, whose sizes are multiples of those of x."""

    def tiled(x: Tensor, target: Tensor) -> Tensor:
        return x.repeat([b // a for a, b in zip(x.shape, target.shape, strict=True)])

    return apply("expand_as", tiled, x, target_tensor, name=name)


def pad_constant_like(x: Variable, y: Variable, pad_value: float = 0.0, name: str | None = None) -> Any:
    """y with pad_value behind it in each dimension, in the shape of x."""

    def padded(x: Tensor, y: Tensor) -> Tensor:
        missing = [(0, a - b) for a, b in zip(x.shape, y.shape, strict=True)]
        return torch.nn.functional.pad(
            y, [size for pair in reversed(missing) for size in pair], value=pad_value
        )

    return apply("pad_constant_like", padded, x, y, name=name)


def eye(
    num_rows: int,
    num_columns: int | None = None,
    batch_shape: Sequence[int] | None = None,
    dtype: Any = "float32",
) -> Any:
    """A matrix with ones on the diagonal, repeated in the shape batch_shape in front."""
    matrix = creation.eye(num_rows, num_columns, dtype)
    if not batch_shape:
        return matrix
    return apply("eye", lambda m: m.expand(*batch_shape, *m.shape).clone(), matrix)


def triu(input: Variable, diagonal: int = 0, name: str | None = None) -> Any:
    """The input with zeros below a diagonal."""
    return creation.triu(input, diagonal, name)


def crop_tensor(x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None) -> Any:
    """The part of x of this shape that begins at `offsets`."""
    return manipulation.crop(x, shape, offsets, name)


def crop(x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None) -> Any:
    """The part of x of this shape, or of the shape of a variable, that begins at `offsets`."""
    wanted = shape.size() if isinstance(shape, Variable) else shape
    return manipulation.crop(x, wanted, offsets, name)


# --- order and properties ---------------------------------------------------------------------------------------------


def argsort(input: Variable, axis: int = -1, descending: bool = False, name: str | None = None) -> Any:
    """(the input sorted along `axis`, the indices of its elements)."""

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        order = torch.sort(x, dim=axis, descending=descending, stable=True)
        return order.values, order.indices

    return tuple(apply("argsort", both, input, name=name))


def unique(x: Variable, dtype: Any = "int32") -> Any:
    """(the distinct elements of a vector in the order of their first occurrence, for each element its index there)."""
    return _first_occurrences(x, dtype)[:2]


def unique_with_counts(x: Variable, dtype: Any = "int32") -> Any:
    """As `unique`, and how often each element occurs."""
    return _first_occurrences(x, dtype)


def _first_occurrences(x: Variable, dtype: Any) -> Any:
    values, first, inverse, counts = distinct.unique(x, True, True, True)
    wanted = to_dtype(dtype)

    def ordered(values: Tensor, first: Tensor, inverse: Tensor, counts: Tensor) -> tuple[Tensor, ...]:
        order = torch.argsort(first)
        position = torch.argsort(order)
        return values[order], position[inverse].to(wanted), counts[order].to(wanted)

    return tuple(apply("unique", ordered, values, first, inverse, counts))


def size(input: Variable) -> Any:
    """The number of elements: int64 of shape [1]."""
    return reduction.numel(input)


def has_inf(x: Variable) -> Any:
    """True, of shape [1], if an element is infinite."""
    return apply("has_inf", lambda v: torch.isinf(v).any().reshape(1), x)


def has_nan(x: Variable) -> Any:
    """True, of shape [1], if an element is not a number."""
    return apply("has_nan", lambda v: torch.isnan(v).any().reshape(1), x)


def isfinite(x: Variable) -> Any:
    """True, of shape [1], if no element is infinite or NaN (paddle.isfinite: for each element)."""
    return apply("isfinite", lambda v: torch.isfinite(v).all().reshape(1), x)


def reduce_all(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Any:
    """True if every element over `dim` is true."""
    return reduction.all(input, dim or (dim if dim == 0 else None), keep_dim, name)


def reduce_any(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Any:
    """True if some element over `dim` is true."""
    return reduction.any(input, dim or (dim if dim == 0 else None), keep_dim, name)


# --- random numbers and counters --------------------------------------------------------------------------------------


def _sizes_like(input: Variable, shape: Sequence[int], input_dim: int, output_dim: int) -> list[Any]:
    sizes: list[Any] = list(shape)
    sizes[output_dim] = input.size(input_dim)
    return sizes


def uniform_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: Any = "float32",
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Any:
    """Uniform random numbers; the size of dimension output_dim_idx is that of the input's input_dim_idx."""
    return uniform_random(_sizes_like(input, shape, input_dim_idx, output_dim_idx), dtype, min, max, seed)


def gaussian_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: Any = "float32",
) -> Any:
    """Gaussian random numbers; the size of dimension output_dim_idx is that of the input's input_dim_idx."""
    return gaussian_random(_sizes_like(input, shape, input_dim_idx, output_dim_idx), mean, std, seed, dtype)


def sampling_id(
    x: Variable, min: float = 0.0, max: float = 1.0, seed: int = 0, dtype: Any = "float32"
) -> Any:
    """For each row of probabilities a random column, int64 [N]; `dtype` has no effect, as in Paddle."""
    if seed or (min, max) != (0.0, 1.0):
        raise ConfigError(f"sampling_id: min={min}, max={max}, seed={seed} are not supported; leave them out")
    return apply("sampling_id", lambda p: torch.multinomial(p, 1).squeeze(1), x)

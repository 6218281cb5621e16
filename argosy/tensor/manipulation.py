"""Reshaping, joining, splitting, slicing and indexing."""

# SPDX-License-Identifier: Apache-2.0
import builtins
from collections.abc import Sequence
from typing import Any

import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.tensor.arguments import Axes, Size, axes, number, one_axis, sizes

# --- shapes -------------------------------------------------------------------------------------------------


def shape(input: Variable) -> Any:
    """The shape that the input has when the program runs: int32, one element for each dimension."""

    def measured(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.full((), size, dtype=torch.int32) for size in x.shape])

    result = apply("shape", measured, input)
    result.sizes = tuple(input.size())
    return result


def rank(input: Variable) -> Any:
    """The number of dimensions of the input: int32 of shape [1]."""
    return apply("rank", lambda x: torch.full((1,), x.ndim, dtype=torch.int32), input)


def reshape(x: Variable, shape: Any, name: str | None = None) -> Any:
    """x in another shape: 0 copies the size of that dimension, one -1 is inferred.

    Sizes may be symbols, `y.size(0)`, and Variables with a known value, `shape(y)[0]`.
    """
    wanted = sizes("reshape: shape", shape)
    if sum(isinstance(size, int) and size == -1 for size in wanted) > 1:
        raise ConfigError(f"reshape: shape={wanted} holds -1 more than once; only one size can be inferred")

    def reshaped(x: torch.Tensor) -> torch.Tensor:
        return x.reshape([x.shape[i] if isinstance(s, int) and s == 0 else s for i, s in enumerate(wanted)])

    return apply("reshape", reshaped, x, name=name)


def flatten(x: Variable, start_axis: int = 0, stop_axis: int = -1, name: str | None = None) -> Any:
    """x with the dimensions from `start_axis` to `stop_axis` (included) flattened into one."""
    return apply("flatten", torch.flatten, x, start_axis, stop_axis, name=name)


def squeeze(x: Variable, axis: Axes = None, name: str | None = None) -> Any:
    """x without its dimensions of size 1, or without those of `axis` that have size 1.

    A dimension whose size is known only when data is fed stays; to name it is an error.
    """
    dims = axes("squeeze", axis, x.ndim)
    for dim in dims if axis is not None else ():
        if x.shape[dim] < 0:
            raise ConfigError(
                f"squeeze: dimension {dim} of {x.name!r} has a size that is known only when data is fed, which "
                "need not be 1; name other dimensions, or reshape"
            )
    return apply("squeeze", torch.squeeze, x, tuple(dim for dim in dims if x.shape[dim] == 1), name=name)


def unsqueeze(x: Variable, axis: int | Sequence[int], name: str | None = None) -> Any:
    """x with new dimensions of size 1, inserted one after the other at `axis`."""
    positions = sizes("unsqueeze: axis", axis)

    def wider(x: torch.Tensor) -> torch.Tensor:
        for position in positions:
            x = x.unsqueeze(int(position))
        return x

    return apply("unsqueeze", wider, x, name=name)


def expand(x: Variable, shape: Any, name: str | None = None) -> Any:
    """x repeated along its dimensions of size 1, and along new ones in front; -1 keeps a size."""
    return apply("expand", lambda x, s: x.expand(s), x, sizes("expand: shape", shape), name=name)


def broadcast_to(x: Variable, shape: Any, name: str | None = None) -> Any:
    """The same as expand."""
    return expand(x, shape, name)


def expand_as(x: Variable, y: Variable, name: str | None = None) -> Any:
    """x expanded to the shape of y."""
    return apply("expand_as", lambda x, y: x.expand(y.shape), x, y, name=name)


def tile(x: Variable, repeat_times: Any, name: str | None = None) -> Any:
    """x repeated this often along each dimension, the last number for the last one."""
    return apply("tile", torch.tile, x, tuple(sizes("tile: repeat_times", repeat_times)), name=name)


def flip(x: Variable, axis: int | Sequence[int], name: str | None = None) -> Any:
    """x backwards along one or several axes."""
    return apply("flip", torch.flip, x, axes("flip", axis, x.ndim), name=name)


reverse = flip


def roll(x: Variable, shifts: Any, axis: Axes = None, name: str | None = None) -> Any:
    """x moved along the axes, wrapping around; without axes, x is flattened."""
    dims = () if axis is None else tuple(axes("roll", axis, x.ndim))
    return apply("roll", torch.roll, x, tuple(sizes("roll: shifts", shifts)), dims, name=name)


# --- putting together and taking apart ----------------------------------------------------------------------


def concat(x: Sequence[Variable], axis: int = 0, name: str | None = None) -> Any:
    """Concatenate variables along an axis; one number, such as `shape(y)[0]`, counts as a vector of one element."""
    dim = number("concat: axis", axis)

    def joined(*parts: torch.Tensor) -> torch.Tensor:
        return torch.cat([part.reshape(1) if part.ndim == 0 else part for part in parts], int(dim))

    return apply("concat", joined, *x, name=name)


def stack(x: Sequence[Variable], axis: int = 0, name: str | None = None) -> Any:
    """Stack variables of one shape along a new axis."""
    return apply("stack", lambda *parts: torch.stack(parts, axis), *x, name=name)


def split(x: Variable, num_or_sections: Any, axis: int = 0, name: str | None = None) -> list[Any]:
    """Split x along an axis into equal parts, or into parts of the given sizes, one of which may be -1."""
    dim = one_axis("split", axis, x.ndim)
    if isinstance(num_or_sections, list | tuple):
        parts = _sections(x, sizes("split", num_or_sections), dim)
    else:
        parts = _equal_sections(x, int(number("split", num_or_sections)), dim)
    return list(apply("split", torch.split, x, parts, dim, name=name))


def _sections(x: Variable, parts: list[Size], dim: int) -> list[Size]:
    open_parts = [i for i, size in enumerate(parts) if isinstance(size, int) and size == -1]
    if len(open_parts) > 1:
        raise ConfigError(f"split: sections {parts} hold -1 more than once; only one size can be inferred")
    rest = x.size(dim) - sum(size for i, size in enumerate(parts) if i not in open_parts)
    return [rest if i in open_parts else size for i, size in enumerate(parts)]


def _equal_sections(x: Variable, count: int, dim: int) -> list[Size]:
    size = x.shape[dim]
    if size < 0:
        raise ConfigError(
            f"split: dimension {dim} of {x.name!r} has a size that is known only when data is fed, and "
            f"nothing says that {count} divides it; give the sizes of the parts, one of them -1"
        )
    if count < 1 or size % count:
        raise ConfigError(
            f"split: size {size} does not divide into {count} equal parts; give the sizes of the parts"
        )
    return [size // count] * count


def chunk(x: Variable, chunks: int, axis: int = 0, name: str | None = None) -> list[Any]:
    """Split x along an axis into equal parts."""
    return split(x, int(chunks), axis, name)


def unbind(input: Variable, axis: int = 0) -> list[Any]:
    """The slices along an axis, without that axis."""
    dim = one_axis("unbind", axis, input.ndim)
    if input.shape[dim] < 0:
        raise ConfigError(
            f"unbind: dimension {dim} of {input.name!r} has a size that is known only when data is fed, so "
            "the number of results is not known; give static.data a number there"
        )
    return list(apply("unbind", torch.unbind, input, dim))


def unstack(x: Variable, axis: int = 0, num: int | None = None) -> list[Any]:
    """The slices along an axis, without that axis; `num`, if given, must be their number."""
    size = x.shape[one_axis("unstack", axis, x.ndim)]
    if num is not None and size != num:
        raise ConfigError(f"unstack: axis {axis} of {x.name!r} has size {size}, not num={num}; leave num out")
    return unbind(x, axis)


# --- parts --------------------------------------------------------------------------------------------------


def slice(input: Variable, axes: Sequence[int], starts: Any, ends: Any) -> Any:
    """The part from `starts` to `ends` (not included) along `axes`; negative numbers count from the end."""
    return _cut("slice", input, axes, starts, ends, [1] * len(list(axes)), None)


def strided_slice(
    x: Variable, axes: Sequence[int], starts: Any, ends: Any, strides: Any, name: str | None = None
) -> Any:
    """As slice, every `strides`-th element; a negative stride goes backwards from `starts`."""
    return _cut("strided_slice", x, axes, starts, ends, strides, name)


def _cut(kind: str, x: Variable, dims: Any, starts: Any, ends: Any, strides: Any, name: str | None) -> Any:
    where = axes(kind, list(dims), x.ndim)
    limits = [
        sizes(f"{kind}: {what}", v) for what, v in (("starts", starts), ("ends", ends), ("strides", strides))
    ]
    if any(len(v) != len(where) for v in limits):
        raise ConfigError(
            f"{kind}: {len(where)} axes but starts={starts}, ends={ends}; give one number for each axis"
        )
    parts = [builtins.slice(*limit) for limit in zip(*limits, strict=True)]
    index = [_backwards(kind, x, d, p) if p.step < 0 else p for d, p in zip(where, parts, strict=True)]

    def cut(x: torch.Tensor) -> torch.Tensor:
        for dim, part in zip(where, index, strict=True):
            x = x[(builtins.slice(None),) * dim + (part,)]
        return x

    return apply(kind, cut, x, name=name)


def _backwards(kind: str, x: Variable, dim: int, part: builtins.slice) -> list[int]:
    if x.shape[dim] < 0:
        raise ConfigError(
            f"{kind}: dimension {dim} of {x.name!r} has a size that is known only when data is fed, and "
            "cannot be sliced backwards; flip the Variable and slice it forwards"
        )
    return list(range(x.shape[dim]))[part]


def crop(x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None) -> Any:
    """The part of x of this shape that begins at `offsets` (default: at the front); -1: all that is left."""
    begin = [0] * x.ndim if offsets is None else sizes("crop: offsets", offsets)
    wanted = [-1] * x.ndim if shape is None else sizes("crop: shape", shape)
    if not len(begin) == len(wanted) == x.ndim:
        raise ConfigError(
            f"crop: shape={shape}, offsets={offsets} for {x.ndim} dimensions; give one number for each"
        )

    def cropped(x: torch.Tensor) -> torch.Tensor:
        for dim, (start, size) in enumerate(zip(begin, wanted, strict=True)):
            rest = isinstance(size, int) and size == -1
            x = x.narrow(dim, start, x.shape[dim] - start if rest else size)
        return x

    return apply("crop", cropped, x, name=name)


# --- rows by index ------------------------------------------------------------------------------------------


def gather(x: Variable, index: Variable, axis: int | None = None, name: str | None = None) -> Any:
    """The slices of x along an axis (default 0) that `index`, of shape [n] or [n, 1], names."""
    dim = one_axis("gather", 0 if axis is None else axis, x.ndim)
    return apply("gather", lambda x, index: x.index_select(dim, index.flatten()), x, index, name=name)


def _places(index: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return index.long().unbind(-1)


def gather_nd(x: Variable, index: Variable, name: str | None = None) -> Any:
    """The elements, or slices, of x at the indices in the last axis of `index`."""
    return apply("gather_nd", lambda x, index: x[_places(index)], x, index, name=name)


def scatter(
    x: Variable, index: Variable, updates: Variable, overwrite: bool = True, name: str | None = None
) -> Any:
    """x with its rows `index` replaced by `updates`; without `overwrite`, by the sum of their updates."""

    def written(x: torch.Tensor, index: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        rows = index.flatten().long()
        if overwrite:
            return x.index_copy(0, rows, updates)
        return x.index_fill(0, rows, 0).index_add(0, rows, updates)

    return apply("scatter", written, x, index, updates, name=name)


def scatter_nd_add(x: Variable, index: Variable, updates: Variable, name: str | None = None) -> Any:
    """x with `updates` added at the indices in the last axis of `index`."""

    def added(x: torch.Tensor, index: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        return x.index_put(_places(index), updates, accumulate=True)

    return apply("scatter_nd_add", added, x, index, updates, name=name)


def scatter_nd(index: Variable, updates: Variable, shape: Any, name: str | None = None) -> Any:
    """Zeros of this shape with `updates` added at the indices in the last axis of `index`."""
    wanted = sizes("scatter_nd: shape", shape)

    def added(index: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        return updates.new_zeros(wanted).index_put(_places(index), updates, accumulate=True)

    return apply("scatter_nd", added, index, updates, name=name)


def diagonal(x: Variable, offset: int = 0, axis1: int = 0, axis2: int = 1, name: str | None = None) -> Any:
    """A diagonal of the matrices in axis1 and axis2, as the last axis."""
    return apply("diagonal", torch.diagonal, x, offset, axis1, axis2, name=name)


def broadcast_tensors(input: Sequence[Variable], name: str | None = None) -> list[Any]:
    """The Variables, each expanded to the shape of their sum."""
    return list(apply("broadcast_tensors", torch.broadcast_tensors, *input, name=name))

"""Distinct elements, histograms and shards of ids."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.tensor.arguments import chosen_dtype


def unique(
    x: Variable,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    dtype: Any = "int64",
    name: str | None = None,
) -> Any:
    """The distinct elements of x, sorted; how many is known when it runs.

    Optionally followed by the index of the first of each in x, for each element of x its index in the result, and how
    often each occurs. `axis` is not supported.
    """
    if axis is not None:
        raise ConfigError(
            f"unique: axis={axis} is not supported; leave it out for the distinct elements of all of x"
        )
    wanted = chosen_dtype(dtype)

    def distinct(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, inverse, counts = torch.unique(x.flatten(), return_inverse=True, return_counts=True)
        order = torch.arange(inverse.shape[0])
        first = torch.zeros_like(counts).index_reduce(0, inverse, order, "amin", include_self=False)
        return values, first.to(wanted), inverse.to(wanted), counts.to(wanted)

    values, *details = apply("unique", distinct, x, name=name)
    asked = (return_index, return_inverse, return_counts)
    chosen = [detail for detail, is_asked in zip(details, asked, strict=True) if is_asked]
    return (values, *chosen) if chosen else values


def histogram(input: Variable, bins: int = 100, min: int = 0, max: int = 0, name: str | None = None) -> Any:
    """How many elements are in each of `bins` equal ranges from min to max, int64; both 0: the range of the input."""

    def counted(x: torch.Tensor) -> torch.Tensor:
        return torch.histc(x.float().flatten(), bins, min, max).long()

    return apply("histogram", counted, input, name=name)


def shard_index(input: Variable, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1) -> Any:
    """Ids of this shard counted from its first one, `ignore_value` for ids of other shards."""
    if not 0 <= shard_id < nshards:
        raise ConfigError(f"shard_index: shard_id={shard_id} of {nshards} shards; use 0 to {nshards - 1}")
    size = (index_num + nshards - 1) // nshards

    def local(ids: torch.Tensor) -> torch.Tensor:
        is_here = torch.div(ids, size, rounding_mode="floor") == shard_id
        return torch.where(is_here, ids % size, ignore_value)

    return apply("shard_index", local, input)

"""New variables: feeds, constants, random numbers; sums; writing to a variable."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import torch

from argosy.engine.ir import names
from argosy.engine.ir.dtypes import to_dtype
from argosy.engine.ir.program import default_main_program
from argosy.engine.ir.variable import Variable
from argosy.framework import random
from argosy.framework.checks import integer
from argosy.framework.layer import apply
from argosy.tensor import arguments, creation, math


def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: bool = True,
    dtype: Any = "float32",
    lod_level: int = 0,
    type: Any = None,
    stop_gradient: bool = True,
) -> Variable:
    """A variable to feed. A batch dimension is prepended to the shape, unless one of its sizes is None or -1.

    (`static.data` and `fluid.data` prepend none.)
    """
    is_static = all(size is not None and size >= 0 for size in shape)
    sizes = [None, *shape] if append_batch_size and is_static else list(shape)
    variable = default_main_program().data(name, sizes, dtype, lod_level)
    if not stop_gradient:
        variable.stop_gradient = False
    return variable


def fill_constant(
    shape: Any,
    dtype: Any,
    value: Any,
    force_cpu: bool = False,
    out: Variable | None = None,
    name: str | None = None,
) -> Any:
    """All elements `value`, a number or a variable with one element; written to `out`, if given."""
    filled = creation.full(shape, value, dtype, name or names.generate("fill_constant"))
    return filled if out is None else creation.assign(filled, out)


def fill_constant_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: Any,
    value: float,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    force_cpu: bool = False,
) -> Any:
    """All elements `value`; the size of dimension output_dim_idx is that of the input's input_dim_idx."""
    sizes = list(shape)
    sizes[output_dim_idx] = input.size(input_dim_idx)
    return creation.full(sizes, value, dtype, names.generate("fill_constant_batch_size_like"))


def zeros(shape: Any, dtype: Any, force_cpu: bool = False, name: str | None = None) -> Any:
    """All elements 0."""
    return fill_constant(shape, dtype, 0, name=name)


def ones(shape: Any, dtype: Any, force_cpu: bool = False, name: str | None = None) -> Any:
    """All elements 1."""
    return fill_constant(shape, dtype, 1, name=name)


def zeros_like(x: Variable, out: Variable | None = None) -> Any:
    """All elements 0, in the shape and dtype of x; written to `out`, if given."""
    zeros = creation.zeros_like(x)
    return zeros if out is None else creation.assign(zeros, out)


def ones_like(x: Variable, out: Variable | None = None) -> Any:
    """All elements 1, in the shape and dtype of x; written to `out`, if given."""
    ones = creation.ones_like(x)
    return ones if out is None else creation.assign(ones, out)


def range(start: Any, end: Any, step: Any, dtype: Any, name: str | None = None) -> Any:
    """start, start + step, … below end."""
    return creation.arange(start, end, step, dtype, name)


def uniform_random(
    shape: Any,
    dtype: Any = "float32",
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
    name: str | None = None,
) -> Any:
    """Uniform random numbers from [min, max); with a `seed` other than 0 the same in every run."""
    return creation.uniform(shape, dtype, min, max, seed, name or names.generate("uniform_random"))


def gaussian_random(
    shape: Any,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: Any = "float32",
    name: str | None = None,
) -> Any:
    """Gaussian random numbers; with a `seed` other than 0 the same in every run."""
    wanted, sizes = to_dtype(dtype), arguments.sizes("gaussian_random: shape", shape)
    own_seed = integer("gaussian_random: seed", seed)

    def drawn(size: list[Any]) -> torch.Tensor:
        if own_seed:
            return random.normal(size, wanted, mean, std, own_seed)
        return torch.randn(size, dtype=wanted) * std + mean

    return apply("gaussian_random", drawn, sizes, name=name)


def assign(input: Any, output: Variable | None = None) -> Any:
    """A copy of a variable, an array or numbers; written to `output`, if given."""
    return creation.assign(input, output)


def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Any:
    """x + value, written to x itself if in_place: a counter, if x is of the scope."""
    return math.increment(x, value) if in_place else apply("increment", torch.add, x, value)


def sums(input: Sequence[Variable], out: Variable | None = None) -> Any:
    """The sum of several variables of one shape; written to `out`, if given."""
    total = math.add_n(input)
    return total if out is None else creation.assign(total, out)


def sum(x: Variable | Sequence[Variable]) -> Any:
    """The sum of several variables of one shape."""
    return math.add_n(x)

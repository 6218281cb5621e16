"""New Variables: constants, ranges, random numbers, triangles. A size may be a symbol: `x.size(0)`."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import torch

from argosy.engine.errors import ArgumentTypeError, ConfigError
from argosy.engine.ir.variable import Variable, first_variable
from argosy.framework import random
from argosy.framework.checks import integer
from argosy.framework.layer import apply
from argosy.tensor.arguments import chosen_dtype, number, sizes


def full(shape: Any, fill_value: Any, dtype: Any = None, name: str | None = None) -> Any:
    """A Variable of this shape with all elements `fill_value`, a number or a Variable with one element."""
    wanted, listed = chosen_dtype(dtype), sizes("full: shape", shape)
    if isinstance(fill_value, Variable):
        return apply("full", lambda v: v.reshape(()).to(wanted).expand(listed).clone(), fill_value, name=name)
    return apply("full", torch.full, listed, fill_value, dtype=wanted, name=name)


def zeros(shape: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Zeros of this shape."""
    return apply("zeros", torch.zeros, sizes("zeros: shape", shape), dtype=chosen_dtype(dtype), name=name)


def ones(shape: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Ones of this shape."""
    return apply("ones", torch.ones, sizes("ones: shape", shape), dtype=chosen_dtype(dtype), name=name)


def empty(shape: Any, dtype: Any = None, name: str | None = None) -> Any:
    """A Variable of this shape for values that are written later; here zeros."""
    return zeros(shape, dtype, name)


def empty_like(x: Variable, dtype: Any = None, name: str | None = None) -> Any:
    """A Variable like x for values that are written later; here zeros."""
    return zeros_like(x, dtype, name)


def full_like(x: Variable, fill_value: Any, dtype: Any = None, name: str | None = None) -> Any:
    """`fill_value` in the shape of x, and of its dtype unless another is given."""
    return apply("full_like", torch.full_like, x, fill_value, dtype=chosen_dtype(dtype, x.dtype), name=name)


def zeros_like(x: Variable, dtype: Any = None, name: str | None = None) -> Any:
    """Zeros in the shape of x, and of its dtype unless another is given."""
    return apply("zeros_like", torch.zeros_like, x, dtype=chosen_dtype(dtype, x.dtype), name=name)


def ones_like(x: Variable, dtype: Any = None, name: str | None = None) -> Any:
    """Ones in the shape of x, and of its dtype unless another is given."""
    return apply("ones_like", torch.ones_like, x, dtype=chosen_dtype(dtype, x.dtype), name=name)


def arange(start: Any = 0, end: Any = None, step: Any = 1, dtype: Any = None, name: str | None = None) -> Any:
    """start, start + step, … below `end`; with one number from 0 to it.

    Without a dtype int64, or float32 if one of the numbers is a float (Paddle 2.0 gives int64 then too).
    """
    low, high = (0, start) if end is None else (start, end)
    low, high, step = (_number("arange", value) for value in (low, high, step))
    whole = not any(isinstance(v, float) for v in (low, high, step))
    wanted = chosen_dtype(dtype, torch.int64 if whole else None)
    return apply("range", torch.arange, low, high, step, dtype=wanted, name=name)


def linspace(start: Any, stop: Any, num: int, dtype: Any = None, name: str | None = None) -> Any:
    """`num` numbers at equal distances from `start` to `stop`, both included."""
    start, stop, num = (_number("linspace", value) for value in (start, stop, num))
    return apply("linspace", torch.linspace, start, stop, num, dtype=chosen_dtype(dtype), name=name)


def eye(num_rows: int, num_columns: int | None = None, dtype: Any = None, name: str | None = None) -> Any:
    """A matrix with ones on the diagonal and zeros elsewhere."""
    rows = number("eye: num_rows", num_rows)
    columns = rows if num_columns is None else number("eye: num_columns", num_columns)
    return apply("eye", torch.eye, rows, columns, dtype=chosen_dtype(dtype), name=name)


def to_tensor(data: Any, dtype: Any = None, place: Any = None, stop_gradient: bool = True) -> Any:
    """Numbers, lists or an array as a constant of the program; one number has shape [1].

    `place` has no effect: a program runs where its executor runs it.
    """
    if first_variable(data) is not None:
        raise ConfigError("to_tensor was given a Variable; put Variables together with stack or concat")
    constant = apply("assign", torch.clone, _constant(data, dtype))
    constant.stop_gradient = stop_gradient
    return constant


def assign(x: Any, output: Variable | None = None) -> Any:
    """A copy of x (a Variable, numbers or an array), or x written into `output`, which is returned."""
    source = x if isinstance(x, Variable) else _constant(x, None)
    if output is None:
        return apply("assign", torch.clone, source)
    if output.is_data:
        raise ConfigError(
            f"assign would overwrite the fed array of {output.name!r} ; give no output, or another"
        )

    if output.declared_shape is not None or output.program.is_outside(output):
        return _overwrite(source, output)

    def written(x: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        with torch.set_grad_enabled(not output.is_leaf):
            return output.copy_(x)

    return apply("assign", written, source, output)


def _overwrite(source: Any, output: Variable) -> Variable:
    """Give a variable a new value without mutating memory: it has none yet, or a branch or loop writes it."""
    if output.declared_shape is not None:
        new = apply("assign", torch.clone, source)
    else:
        new = apply("assign", lambda x, out: x.to(out.dtype).expand(out.shape).clone(), source, output)
    output.program.write(output, new.value)
    return output


def _constant(data: Any, dtype: Any) -> torch.Tensor:
    array = data if isinstance(data, torch.Tensor | np.ndarray) else _array(data)
    tensor = torch.as_tensor(array).detach().clone()
    tensor = tensor if dtype is None else tensor.to(chosen_dtype(dtype))
    return tensor.reshape(1) if tensor.ndim == 0 else tensor


def _array(data: Any) -> torch.Tensor:
    try:
        return torch.tensor(data)
    except (TypeError, ValueError, RuntimeError) as e:
        raise ArgumentTypeError(
            f"{type(data).__name__} {data!r} cannot become a tensor: {e}; give numbers"
        ) from e


def _number(what: str, value: Any) -> Any:
    """A number as it is; of an integer Variable the value, which must be known while the program is built."""
    return number(what, value) if isinstance(value, Variable) else value


# --- random numbers: new ones in every run; `program.random_seed` makes them repeatable ---------------------


def rand(shape: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Uniform random numbers from [0, 1)."""
    return apply("rand", torch.rand, sizes("rand: shape", shape), dtype=chosen_dtype(dtype), name=name)


def randn(shape: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Gaussian random numbers with mean 0 and standard deviation 1."""
    return apply("gaussian", torch.randn, sizes("randn: shape", shape), dtype=chosen_dtype(dtype), name=name)


def standard_normal(shape: Any, dtype: Any = None, name: str | None = None) -> Any:
    """The same as randn."""
    return randn(shape, dtype, name)


def uniform(
    shape: Any, dtype: Any = None, min: float = -1.0, max: float = 1.0, seed: int = 0, name: str | None = None
) -> Any:
    """Uniform random numbers from [min, max); with a `seed` other than 0 the same in every run."""
    wanted, listed = chosen_dtype(dtype), sizes("uniform: shape", shape)
    own_seed = integer("uniform: seed", seed)

    def drawn(size: list[Any]) -> torch.Tensor:
        if own_seed:
            return random.uniform(size, wanted, min, max, own_seed)
        return torch.rand(size, dtype=wanted) * (max - min) + min

    return apply("uniform", drawn, listed, name=name)


def normal(mean: Any = 0.0, std: Any = 1.0, shape: Any = None, name: str | None = None) -> Any:
    """Gaussian random numbers; `mean` or `std` may be Variables, which then give the shape."""
    listed = sizes("normal: shape", [1] if shape is None else shape)

    def drawn(mean: Any, std: Any) -> Any:
        like = next((v for v in (mean, std) if isinstance(v, torch.Tensor)), None)
        return mean + std * (torch.randn(listed) if like is None else torch.randn_like(like))

    return apply("gaussian", drawn, mean, std, name=name)


def randint(
    low: int = 0, high: int | None = None, shape: Any = (1,), dtype: Any = None, name: str | None = None
) -> Any:
    """Random integers from [low, high), or from [0, low) without `high`."""
    first, last = (0, low) if high is None else (low, high)
    if first >= last:
        raise ConfigError(f"randint({first}, {last}) is an empty range; low must be below high")
    wanted = chosen_dtype(dtype, torch.int64)
    return apply(
        "randint", torch.randint, first, last, sizes("randint: shape", shape), dtype=wanted, name=name
    )


def randperm(n: int, dtype: Any = "int64", name: str | None = None) -> Any:
    """The numbers 0 to n - 1 in random order."""
    return apply("randperm", torch.randperm, number("randperm", n), dtype=chosen_dtype(dtype), name=name)


def bernoulli(x: Variable, name: str | None = None) -> Any:
    """1 with probability x, else 0."""
    return apply("bernoulli", torch.bernoulli, x, name=name)


def multinomial(x: Variable, num_samples: int = 1, replacement: bool = False, name: str | None = None) -> Any:
    """Indices drawn with the probabilities in x, which need not add up to 1."""
    return apply("multinomial", torch.multinomial, x, num_samples, replacement, name=name)


# --- parts of matrices --------------------------------------------------------------------------------------


def tril(x: Variable, diagonal: int = 0, name: str | None = None) -> Any:
    """x with zeros above a diagonal."""
    return apply("tril", torch.tril, x, diagonal, name=name)


def triu(x: Variable, diagonal: int = 0, name: str | None = None) -> Any:
    """x with zeros below a diagonal."""
    return apply("triu", torch.triu, x, diagonal, name=name)


def diag(x: Variable, offset: int = 0, padding_value: float = 0, name: str | None = None) -> Any:
    """A matrix with the vector x on a diagonal, `padding_value` elsewhere; or the diagonal of a matrix."""

    def filled(x: torch.Tensor) -> torch.Tensor:
        if x.ndim == 2:
            return torch.diagonal(x, offset).clone()
        inside = torch.diag_embed(torch.ones_like(x, dtype=torch.bool), offset)
        return torch.where(inside, torch.diag_embed(x, offset), padding_value).to(x.dtype)

    return apply("diag", filled, x, name=name)


def meshgrid(*args: Any, name: str | None = None) -> Any:
    """For each vector its values over the grid that all of them span, the first one along axis 0."""
    vectors = args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args
    return list(apply("meshgrid", _grid, *vectors, name=name))


def _grid(*vectors: torch.Tensor) -> list[torch.Tensor]:
    return [grid.clone() for grid in torch.meshgrid(*vectors, indexing="ij")]

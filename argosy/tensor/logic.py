"""Comparisons and truth values."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import torch

from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.framework.variant import binary, row
from argosy.tensor.creation import assign

equal = binary("equal", torch.eq, "True where x == y.")
not_equal = binary("not_equal", torch.ne, "True where x != y.")
less_than = binary("less_than", torch.lt, "True where x < y.")
less_equal = binary("less_equal", torch.le, "True where x <= y.")
greater_than = binary("greater_than", torch.gt, "True where x > y.")
greater_equal = binary("greater_equal", torch.ge, "True where x >= y.")


def equal_all(x: Variable, y: Variable, name: str | None = None) -> Any:
    """True, of shape [1], if x and y have one shape and the same elements."""

    def same(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.eq(x, y).all().reshape(1) if x.shape == y.shape else x.new_zeros(1, dtype=torch.bool)

    return apply("equal_all", same, x, y, name=name)


def allclose(
    x: Variable,
    y: Variable,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
    name: str | None = None,
) -> Any:
    """True, of shape [1], if everywhere |x - y| <= atol + rtol * |y|."""

    def near(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.isclose(x, y, rtol, atol, equal_nan).all().reshape(1)

    return apply("allclose", near, x, y, name=name)


def _logical(
    kind: str, function: Callable[..., Any], x: Any, y: Any, out: Any = None, name: str | None = None
) -> Any:
    return _written(apply(kind, function, x, y, name=name), out)


def _written(result: Variable, out: Variable | None) -> Any:
    """The result, or `out` after the result was written to it."""
    return result if out is None else assign(result, out)


def _operator(own_name: str, function: Callable[..., Any], doc: str) -> Callable[..., Any]:
    return row(own_name, f"{doc}; written to `out`, if given.", _logical, own_name, function)


logical_and = _operator("logical_and", torch.logical_and, "True where x and y are true")
logical_or = _operator("logical_or", torch.logical_or, "True where x or y or both are true")
logical_xor = _operator(
    "logical_xor", torch.logical_xor, "True where one of x and y is true and the other not"
)


def logical_not(x: Variable, out: Any = None, name: str | None = None) -> Any:
    """True where x is false; written to `out`, if given."""
    return _written(apply("logical_not", torch.logical_not, x, name=name), out)


def is_empty(x: Variable, name: str | None = None) -> Any:
    """True, of shape [1], if x has no element when the program runs."""
    return apply("is_empty", lambda x: torch.full((1,), x.numel(), dtype=torch.int64) == 0, x, name=name)


def is_tensor(x: Any) -> bool:
    """True if x is a Variable."""
    return isinstance(x, Variable)


bitwise_and = _operator("bitwise_and", torch.bitwise_and, "The bits that are set in x and y")
bitwise_or = _operator("bitwise_or", torch.bitwise_or, "The bits that are set in x or y or both")
bitwise_xor = _operator("bitwise_xor", torch.bitwise_xor, "The bits that are set in one of x and y only")


def bitwise_not(x: Variable, out: Any = None, name: str | None = None) -> Any:
    """The bits that are not set in x; written to `out`, if given."""
    return _written(apply("bitwise_not", torch.bitwise_not, x, name=name), out)

"""Products and norms of vectors and matrices."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.framework.variant import binary, unary
from argosy.tensor.arguments import Axes, axes, no_scalar, one_axis


def _dot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y).sum(-1, keepdim=True)


bmm = binary("bmm", torch.bmm, "The products of two stacks of matrices, one by one.")
dot = binary(
    "dot", _dot, "The sum of x * y over the last axis: shape [1] of vectors, [N, 1] of stacks of them."
)
inverse = unary("inverse", torch.linalg.inv, "The inverses of square matrices.")


def matmul(
    x: Variable, y: Variable, transpose_x: bool = False, transpose_y: bool = False, name: str | None = None
) -> Any:
    """The matrix product, of stacks of matrices too; of two vectors their dot product of shape [1]."""

    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        left = x.mT if transpose_x and x.ndim > 1 else x
        return torch.matmul(left, y.mT if transpose_y and y.ndim > 1 else y)

    return apply("matmul", no_scalar(product), x, y, name=name)


def mm(input: Variable, mat2: Variable, name: str | None = None) -> Any:
    """The matrix product, as matmul without transposing."""
    return matmul(input, mat2, name=name)


def mv(x: Variable, vec: Variable, name: str | None = None) -> Any:
    """A matrix times a vector."""
    return apply("mv", torch.mv, x, vec, name=name)


def t(input: Variable, name: str | None = None) -> Any:
    """A matrix with rows and columns exchanged; a vector as it is."""
    if input.ndim > 2:
        raise ConfigError(
            f"t: {input.name!r} has {input.ndim} dimensions, not 2 at most; use transpose(x, perm)"
        )
    return apply("transpose", lambda x: x.t().clone() if x.ndim < 2 else x.t(), input, name=name)


def transpose(x: Variable, perm: Sequence[int], name: str | None = None) -> Any:
    """x with its dimensions in the order `perm`."""
    order = axes("transpose: perm", perm, x.ndim)
    if sorted(order) != list(range(x.ndim)):
        raise ConfigError(
            f"transpose: perm={list(perm)} does not name each of {x.ndim} dimensions once; e.g. [1, 0]"
        )
    return apply("transpose", torch.permute, x, order, name=name)


def norm(
    x: Variable, p: float | str = "fro", axis: Axes = None, keepdim: bool = False, name: str | None = None
) -> Any:
    """The p-norm of the elements over `axis`, one or several, None for all; 'fro' is 2.

    As in Paddle, over two axes too it is the norm of the elements, not of the matrix as an operator.
    """
    if isinstance(p, str) and p != "fro":
        raise ConfigError(f"norm: p={p!r} is not known; use a number, float('inf') or 'fro'")
    order = 2.0 if isinstance(p, str) else float(p)
    over = axes("norm", axis, x.ndim)
    return apply("p_norm", no_scalar(torch.linalg.vector_norm), x, order, over, keepdim, name=name)


def dist(x: Variable, y: Variable, p: float = 2, name: str | None = None) -> Any:
    """The p-norm of x - y, of shape [1]."""
    return apply("dist", lambda x, y: torch.linalg.vector_norm(x - y, float(p)).reshape(1), x, y, name=name)


def cross(x: Variable, y: Variable, axis: int | None = None, name: str | None = None) -> Any:
    """The cross product along an axis of size 3; None: the first such axis."""
    if axis is None and 3 not in x.shape:
        raise ConfigError(f"cross: {x.name!r} has shape {list(x.shape)}; one dimension must have size 3")
    dim = x.shape.index(3) if axis is None else one_axis("cross", axis, x.ndim)
    return apply("cross", torch.linalg.cross, x, y, dim=dim, name=name)


def cholesky(x: Variable, upper: bool = False, name: str | None = None) -> Any:
    """The triangular factor L of a positive definite matrix L @ L.T, or its transpose if `upper`."""
    return apply("cholesky", torch.linalg.cholesky, x, upper=upper, name=name)


def trace(x: Variable, offset: int = 0, axis1: int = 0, axis2: int = 1, name: str | None = None) -> Any:
    """The sum of a diagonal."""

    def total(x: torch.Tensor) -> torch.Tensor:
        return torch.diagonal(x, offset, axis1, axis2).sum(-1)

    return apply("trace", no_scalar(total), x, name=name)


def kron(x: Variable, y: Variable, name: str | None = None) -> Any:
    """The Kronecker product: every element of x times all of y."""
    return apply("kron", torch.kron, x, y, name=name)


def einsum(equation: str, *operands: Variable) -> Any:
    """Sums of products in Einstein's notation: einsum("bij,bjk->bik", x, y)."""
    return apply("einsum", no_scalar(torch.einsum), equation, *operands)


def tensordot(x: Variable, y: Variable, axes: Any = 2, name: str | None = None) -> Any:
    """The sum of products over the last `axes` axes of x and the first of y, or over two lists of axes."""
    return apply("tensordot", no_scalar(torch.tensordot), x, y, axes, name=name)

"""Products and norms."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import pytest
import torch

from argosy import tensor
from argosy.engine.errors import ConfigError

Agree = Callable[..., None]


def shaped(out: torch.Tensor) -> torch.Tensor:
    return out.reshape(1) if out.ndim == 0 else out


@pytest.mark.parametrize(
    ("x", "y", "tx", "ty"),
    [
        ((None, 3), (3, 4), False, False),
        ((3, None), (3, 4), True, False),
        ((None, 3), (4, 3), False, True),
        ((3, None), (4, 3), True, True),
        ((None, 2, 3), (None, 3, 4), False, False),
        ((None, 2, 3, 5), (5, 2), False, False),
        ((None, 3, 2), (None, 4, 3), True, True),
        ((3,), (3,), True, True),
        ((None, 3), (3,), False, False),
    ],
)
def test_matmul_multiplies_matrices_and_stacks_of_them(
    agree: Agree, x: Any, y: Any, tx: bool, ty: bool
) -> None:
    def expect(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return shaped((x.mT if tx and x.ndim > 1 else x) @ (y.mT if ty and y.ndim > 1 else y))

    agree(lambda x, y: tensor.matmul(x, y, tx, ty), expect, x, y)


def test_products_are_torch_s(agree: Agree) -> None:
    agree(tensor.mm, torch.mm, (None, 3), (3, 2))
    agree(tensor.bmm, torch.bmm, (None, 2, 3), (None, 3, 4))
    agree(tensor.mv, torch.mv, (None, 3), (3,))


def test_dot_works_on_vectors_and_rows(agree: Agree) -> None:
    agree(tensor.dot, lambda x, y: torch.dot(x, y).reshape(1), (None,), (None,))
    agree(tensor.dot, lambda x, y: (x * y).sum(1, keepdim=True), (None, 3), (None, 3))


def test_t_exchanges_rows_and_columns(agree: Agree) -> None:
    agree(tensor.t, torch.t, (None, 3))
    agree(tensor.t, lambda x: x.clone(), (None,))
    with pytest.raises(ConfigError, match="transpose"):
        tensor.t(tensor.ones([1, 2, 3]))


@pytest.mark.parametrize("perm", [[1, 0, 2], (2, 0, 1), [-1, 0, 1]])
def test_transpose_orders_dimensions(agree: Agree, perm: Any) -> None:
    agree(lambda x: tensor.transpose(x, perm), lambda x: x.permute(*perm), (None, 3, 4))


def test_transpose_wants_each_dimension_once() -> None:
    with pytest.raises(ConfigError, match="once"):
        tensor.transpose(tensor.ones([2, 3]), [0, 0])


@pytest.mark.parametrize(
    ("p", "axis", "keepdim"),
    [
        ("fro", None, False),
        ("fro", [1, 2], True),
        (1, 1, False),
        (2, 0, True),
        (3.5, [0, 2], False),
        (0, None, False),
        (float("inf"), None, True),
        (float("-inf"), [1, 2], False),
    ],
)
def test_norm_is_that_of_the_elements(agree: Agree, p: Any, axis: Any, keepdim: bool) -> None:
    def expect(x: torch.Tensor) -> torch.Tensor:
        order = 2 if p == "fro" else p
        dims = tuple(range(3)) if axis is None else axis
        return shaped(torch.linalg.vector_norm(x, order, dims, keepdim))

    agree(lambda x: tensor.norm(x, p, axis, keepdim), expect, (None, 3, 2))


def test_norm_refuses_a_word_it_does_not_know() -> None:
    with pytest.raises(ConfigError, match="nuc"):
        tensor.norm(tensor.ones([2, 2]), "nuc")


@pytest.mark.parametrize("p", [1, 2, float("inf")])
def test_dist_broadcasts(agree: Agree, p: float) -> None:
    agree(
        lambda x, y: tensor.dist(x, y, p),
        lambda x, y: torch.dist(x, y.expand_as(x), p).reshape(1),
        (None, 3),
        (3,),
    )


def test_cross_finds_the_axis_of_size_three(agree: Agree) -> None:
    agree(tensor.cross, torch.linalg.cross, (None, 3), (None, 3))
    agree(
        lambda x, y: tensor.cross(x, y, 1),
        lambda x, y: torch.linalg.cross(x, y, dim=1),
        (None, 3, 2),
        (None, 3, 2),
    )
    with pytest.raises(ConfigError, match="size 3"):
        tensor.cross(tensor.ones([2, 2]), tensor.ones([2, 2]))


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_factors_a_positive_matrix(agree: Agree, upper: bool) -> None:
    def square(x: Any) -> Any:
        return x @ x.mT + 3 * torch.eye(3)

    agree(
        lambda x: tensor.cholesky(tensor.matmul(x, x, transpose_y=True) + 3 * tensor.eye(3), upper),
        lambda x: torch.linalg.cholesky(square(x), upper=upper),
        (None, 3, 2),
        rtol=1e-4,
    )


def test_inverse_and_trace_are_torch_s(agree: Agree) -> None:
    agree(
        lambda x: tensor.inverse(x + 5 * tensor.eye(3)),
        lambda x: torch.inverse(x + 5 * torch.eye(3)),
        (None, 3, 3),
    )
    agree(tensor.trace, lambda x: torch.trace(x).reshape(1), (3, 4))
    agree(lambda x: tensor.trace(x, 1, 1, 2), lambda x: x.diagonal(1, 1, 2).sum(-1), (None, 3, 3))


def test_kron_einsum_and_tensordot_are_torch_s(agree: Agree) -> None:
    agree(
        lambda x, y: [
            tensor.kron(x, y),
            tensor.einsum("ij,kj->ik", x, y),
            tensor.einsum("ij,ij->", x, x),
            tensor.tensordot(x, y, [[1], [1]]),
        ],
        lambda x, y: [
            torch.kron(x, y),
            x @ y.T,
            (x * x).sum().reshape(1),
            torch.tensordot(x, y, [[1], [1]]),
        ],
        (2, 3),
        (4, 3),
    )

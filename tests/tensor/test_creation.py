"""Creation: constants, ranges, random numbers, what `assign` writes."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from argosy import tensor
from argosy.engine.errors import ConfigError
from argosy.engine.ir.backward import gradients
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.framework.initializer import Constant
from argosy.framework.layer import create_state

Agree = Callable[..., None]


def value(variable: Any, feed: dict[str, Any] | None = None) -> Any:
    return Executor().run(default_main_program(), feed or {}, [variable])[0]


@pytest.mark.parametrize(
    ("create", "expected"),
    [
        (lambda: tensor.zeros([2, 3]), np.zeros((2, 3), "float32")),
        (lambda: tensor.ones((2,), "int32"), np.ones(2, "int32")),
        (lambda: tensor.ones(np.array([2, 1])), np.ones((2, 1), "float32")),
        (lambda: tensor.full([2, 2], 3), np.full((2, 2), 3, "float32")),
        (lambda: tensor.full([2], True, "bool"), np.array([True, True])),
        (lambda: tensor.full([2], tensor.to_tensor(4.0), "int64"), np.array([4, 4])),
        (lambda: tensor.arange(5), np.arange(5)),
        (lambda: tensor.arange(1, 7, 2), np.arange(1, 7, 2)),
        (lambda: tensor.arange(0, 1, 0.25), np.arange(0, 1, 0.25, "float32")),
        (lambda: tensor.arange(3, dtype="float64"), np.arange(3.0)),
        (lambda: tensor.linspace(0, 1, 5), np.linspace(0, 1, 5, dtype="float32")),
        (lambda: tensor.eye(2, 3), np.eye(2, 3, dtype="float32")),
        (lambda: tensor.eye(2, dtype="int64"), np.eye(2, dtype="int64")),
        (lambda: tensor.to_tensor(3.5), np.array([3.5], "float32")),
        (lambda: tensor.to_tensor([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]])),
        (lambda: tensor.to_tensor(np.ones((1, 2))), np.ones((1, 2))),
        (lambda: tensor.to_tensor([1, 2], "float32"), np.array([1, 2], "float32")),
        (lambda: tensor.to_tensor(torch.ones(2)), np.ones(2, "float32")),
        (lambda: tensor.assign([1.0, 2.0]), np.array([1, 2], "float32")),
        (lambda: tensor.assign(np.arange(3)), np.arange(3)),
    ],
)
def test_constants_have_value_shape_and_dtype(create: Callable[[], Any], expected: Any) -> None:
    variable = create()
    assert variable.shape == expected.shape
    np.testing.assert_array_equal(value(variable), expected, strict=True)


@pytest.mark.parametrize("name", ["zeros_like", "ones_like"])
@pytest.mark.parametrize("dtype", [None, "int32"])
def test_like_takes_shape_and_dtype_from_x(agree: Agree, name: str, dtype: str | None) -> None:
    wanted = torch.int32 if dtype else torch.float32
    agree(
        lambda x: getattr(tensor, name)(x, dtype), lambda x: getattr(torch, name)(x, dtype=wanted), (None, 3)
    )


def test_full_like_takes_shape_and_dtype_from_x(agree: Agree) -> None:
    agree(lambda x: tensor.full_like(x, 2.5), lambda x: torch.full_like(x, 2.5), (None, 3))


def test_sizes_may_be_symbols(agree: Agree) -> None:
    agree(lambda x: tensor.ones([x.size(0), 2]), lambda x: torch.ones(x.shape[0], 2), (None, 3))
    agree(
        lambda x: tensor.full([x.size(0) * 2], 3.0), lambda x: torch.full((x.shape[0] * 2,), 3.0), (None, 3)
    )
    agree(lambda x: tensor.arange(x.size(0)), lambda x: torch.arange(x.shape[0]), (None, 3))


def test_sizes_from_values_are_refused_with_the_way_out() -> None:
    size = default_main_program().data("size", [1], "int64")
    with pytest.raises(ConfigError, match=r"x\.size\(0\)"):
        tensor.zeros([size, 3])
    with pytest.raises(ConfigError, match=r"x\.size\(0\)"):
        tensor.arange(size)
    with pytest.raises(ConfigError, match="whole numbers"):
        tensor.zeros([2.5])


def test_to_tensor_can_be_differentiated_for() -> None:
    x = tensor.to_tensor([1.0, 2.0], stop_gradient=False)
    (grad,) = gradients(tensor.sum(x * x), x)
    np.testing.assert_allclose(value(grad), [2, 4])
    assert tensor.to_tensor([1.0]).stop_gradient


def test_to_tensor_refuses_variables_and_words() -> None:
    with pytest.raises(ConfigError, match="stack"):
        tensor.to_tensor([tensor.ones([1])])
    with pytest.raises(ConfigError, match="numbers"):
        tensor.to_tensor("seven")


def test_assign_copies(agree: Agree) -> None:
    agree(tensor.assign, torch.clone, (None, 3))


def test_assign_writes_into_a_variable_of_the_scope() -> None:
    x = default_main_program().data("x", [2], "float32")
    state = create_state("kept", [2], "float32", Constant(7.0))
    assert tensor.assign(x, state) is state
    exe = Executor()
    exe.run(default_startup_program())
    exe.run(default_main_program(), {"x": np.array([1, 2], "float32")})
    fed = np.array([3, 4], "float32")
    (fetched,) = exe.run(default_main_program(), {"x": fed}, [state])
    np.testing.assert_array_equal(fetched, fed)


def test_assign_does_not_write_into_what_is_fed() -> None:
    x = default_main_program().data("x", [2], "float32")
    with pytest.raises(ConfigError, match="fed array"):
        tensor.assign([1.0, 2.0], x)


def test_random_numbers_have_the_right_spread() -> None:
    default_main_program().random_seed = 3
    values = [
        tensor.rand([4000]),
        tensor.uniform([4000], min=-3.0, max=1.0),
        tensor.randn([4000]),
        tensor.standard_normal([4000], "float64"),
        tensor.normal(2.0, 3.0, [4000]),
        tensor.randint(2, 9, [4000]),
        tensor.bernoulli(tensor.full([4000], 0.25)),
    ]
    fetched = Executor().run(default_main_program(), {}, values)
    means = [0.5, -1.0, 0.0, 0.0, 2.0, 5.0, 0.25]
    spreads = [12**-0.5, 4 * 12**-0.5, 1.0, 1.0, 3.0, 2.0, 0.1875**0.5]
    for array, mean, spread in zip(fetched, means, spreads, strict=True):
        assert array.shape == (4000,)
        assert abs(array.mean() - mean) < 5 * spread / 4000**0.5
        assert abs(array.std() - spread) < 0.1 * spread
    assert fetched[3].dtype == np.float64
    assert fetched[5].dtype == np.int64
    assert set(fetched[5]) == set(range(2, 9))
    assert fetched[1].min() >= -3
    assert fetched[1].max() < 1


def test_every_run_draws_new_random_numbers() -> None:
    x = tensor.rand([3])
    exe = Executor()
    first, second = (exe.run(default_main_program(), {}, [x])[0] for _ in range(2))
    assert (first != second).all()


def test_normal_takes_its_shape_from_variables() -> None:
    mean = default_main_program().data("mean", [None, 2], "float32")
    drawn = tensor.normal(mean, tensor.full([1], 1e-3))
    for batch in (5, 2):
        fed = np.arange(2.0 * batch, dtype="float32").reshape(batch, 2)
        np.testing.assert_allclose(value(drawn, {"mean": fed}), fed, atol=0.02)
    assert tensor.normal().shape == (1,)


def test_randint_with_one_number_starts_at_zero() -> None:
    assert set(value(tensor.randint(3, shape=[200]))) == {0, 1, 2}
    assert value(tensor.randint(0, 5, dtype="int32")).dtype == np.int32
    with pytest.raises(ConfigError, match="low must be below high"):
        tensor.randint(3, 3)


def test_randperm_and_multinomial_draw_indices() -> None:
    assert sorted(value(tensor.randperm(6))) == list(range(6))
    weights = tensor.to_tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]])
    actual = value(tensor.multinomial(weights, 50, replacement=True))
    assert set(actual[0]) == {1}
    assert set(actual[1]) == {0, 2}


def test_a_seed_of_one_layer_gives_the_same_numbers_in_every_run() -> None:
    drawn = tensor.uniform([500], min=2.0, max=4.0, seed=5)
    first, second = value(drawn), value(drawn)
    np.testing.assert_array_equal(first, second)
    assert (first.min(), first.mean(), first.max()) == pytest.approx((2, 3, 4), abs=0.1)
    with pytest.raises(TypeError, match="uniform: seed is 'x'"):
        tensor.uniform([2], seed="x")


@pytest.mark.parametrize("name", ["tril", "triu"])
@pytest.mark.parametrize("diagonal", [0, 1, -1])
def test_triangles_are_torch_s(agree: Agree, name: str, diagonal: int) -> None:
    agree(
        lambda x: getattr(tensor, name)(x, diagonal),
        lambda x: getattr(torch, name)(x, diagonal),
        (None, 3, 4),
    )


@pytest.mark.parametrize("offset", [0, 1, -2])
def test_diag_makes_and_takes_diagonals(agree: Agree, offset: int) -> None:
    agree(lambda x: tensor.diag(x, offset), lambda x: torch.diag(x, offset), (3,))
    agree(lambda x: tensor.diag(x, offset), lambda x: torch.diag(x, offset).clone(), (3, 4))


def test_diag_fills_the_rest() -> None:
    np.testing.assert_array_equal(
        value(tensor.diag(tensor.to_tensor([1, 2]), padding_value=9)), [[1, 9], [9, 2]]
    )


def test_meshgrid_spans_a_grid(agree: Agree) -> None:
    agree(tensor.meshgrid, lambda *v: torch.meshgrid(*v, indexing="ij"), (None,), (3,))
    agree(lambda *v: tensor.meshgrid(list(v)), lambda *v: torch.meshgrid(*v, indexing="ij"), (None,), (3,))


def test_empty_has_the_shape_and_dtype(agree: Agree) -> None:
    agree(
        lambda x: [tensor.empty([2, 3], "int64"), tensor.empty_like(x)],
        lambda x: [torch.zeros(2, 3, dtype=torch.int64), torch.zeros_like(x)],
        (None, 3),
    )

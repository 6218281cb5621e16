"""Arithmetic of two variables: broadcasting at an axis, activation, names; comparison."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program, default_main_program, default_startup_program, program_guard
from argosy.engine.runtime.executor import Executor
from argosy.fluid import layers

Agree = Callable[..., None]

SAME: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
    "mod": torch.remainder,
}
COMPARED: dict[str, Callable[..., torch.Tensor]] = {
    "less_than": torch.lt,
    "less_equal": torch.le,
    "greater_than": torch.gt,
    "greater_equal": torch.ge,
    "equal": torch.eq,
    "not_equal": torch.ne,
}


@pytest.mark.parametrize("name", SAME)
def test_equal_shapes_and_shapes_that_end_alike_are_torch_s(agree: Agree, name: str) -> None:
    function = getattr(layers, f"elementwise_{name}")
    agree(function, SAME[name], (None, 3, 2), (None, 3, 2))
    agree(function, SAME[name], (None, 3, 2), (3, 2))


@pytest.mark.parametrize("name", ["add", "div"])
def test_y_is_broadcast_from_the_axis_of_x(agree: Agree, name: str) -> None:
    function = getattr(layers, f"elementwise_{name}")
    agree(
        lambda x, y: function(x, y, axis=1),
        lambda x, y: SAME[name](x, y[:, :, None]),
        (None, 3, 4, 2),
        (3, 4),
    )
    agree(
        lambda x, y: function(x, y, axis=0),
        lambda x, y: SAME[name](x, y[:, None, None]),
        (None, 3, 2),
        (None,),
    )


def test_the_smaller_one_may_come_first(agree: Agree) -> None:
    agree(lambda x, y: layers.elementwise_sub(x, y, axis=1), lambda x, y: x[:, None] - y, (3,), (None, 3, 2))


def test_pow_takes_positive_numbers(agree: Agree) -> None:
    agree(layers.elementwise_pow, torch.pow, ((None, 3), "positive"), (None, 3))


def test_integers_divide_towards_zero_and_leave_the_sign_of_the_divisor() -> None:
    x, y = (default_main_program().data(n, [None], "int64") for n in "xy")
    fetches = [f(x, y) for f in (layers.elementwise_div, layers.elementwise_floordiv, layers.elementwise_mod)]
    feed = {"x": np.array([7, -7, 7, -7]), "y": np.array([2, 2, -2, -2])}
    quotient, floor, rest = Executor().run(feed=feed, fetch_list=fetches)
    assert quotient.tolist() == [3, -3, -3, 3]
    assert floor.tolist() == [3, -4, -4, 3]
    assert rest.tolist() == [1, 1, -1, -1]


def test_the_sum_has_the_layer_s_name_and_the_activation_the_next() -> None:
    x = layers.data("x", [3])
    out = layers.elementwise_add(x, x, act="relu", name="res2a.add.output.5")
    assert out.name == "res2a.add.output.5.tmp_1"
    fed = np.array([[-1.0, 0.0, 2.0]], dtype="float32")
    fetched = Executor().run(feed={"x": fed}, fetch_list=["res2a.add.output.5.tmp_0", out])
    assert fetched[0].tolist() == [[-2, 0, 4]]
    assert fetched[1].tolist() == [[0, 0, 4]]


def test_names_count_from_zero_by_kind() -> None:
    x = layers.data("x", [3])
    assert layers.elementwise_add(x, x).name == "elementwise_add_0.tmp_0"
    assert layers.elementwise_mul(x, x).name == "elementwise_mul_0.tmp_0"
    assert layers.elementwise_add(x, x).name == "elementwise_add_1.tmp_0"


def test_an_axis_where_y_does_not_fit_is_refused() -> None:
    x, y = layers.data("x", [3, 4]), layers.data("y", [3], append_batch_size=False)
    with pytest.raises(ConfigError, match="axis=3 of one with 3; use an axis from 0 to 2"):
        layers.elementwise_add(x, y, axis=3)


@pytest.mark.parametrize("name", COMPARED)
def test_comparisons_are_torch_s(agree: Agree, name: str) -> None:
    agree(getattr(layers, name), COMPARED[name], ((None, 3), 3), ((None, 3), 3))


def test_a_comparison_may_be_written_to_a_variable_of_the_scope() -> None:
    x = layers.data("x", [1], append_batch_size=False)
    flag = layers.create_global_var([1], False, "bool", name="flag")
    layers.less_than(x, layers.fill_constant([1], "float32", 2.0), cond=flag)
    exe = Executor()
    exe.run(default_startup_program())
    for value in (1.0, 3.0):
        exe.run(feed={"x": np.array([value], dtype="float32")})
        assert exe.run(feed={"x": np.array([value], dtype="float32")}, fetch_list=[flag])[0].item() is (
            value < 2
        )


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_place_of_y_in_x_is_numpy_s_broadcasting(data: Any) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    axis = data.draw(st.integers(0, len(shape) - 1))
    stop = data.draw(st.integers(axis + 1, len(shape)))
    x = np.random.default_rng(0).standard_normal((2, *shape))
    y = np.random.default_rng(1).standard_normal(shape[axis:stop])
    with program_guard(Program(), Program()):
        left, right = (default_main_program().data(n, a.shape, "float64") for n, a in (("x", x), ("y", y)))
        out = layers.elementwise_add(left, right, axis=axis + 1)
        fetched = Executor().run(default_main_program(), {"x": x, "y": y}, [out])[0]
    behind = len(shape) - stop
    np.testing.assert_array_equal(fetched, x + y.reshape(*y.shape, *[1] * behind))

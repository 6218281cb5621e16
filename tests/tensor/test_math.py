"""Arithmetic: every function against torch, with two batch sizes, gradients included."""

# SPDX-License-Identifier: Apache-2.0
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from argosy import tensor
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program, default_main_program, default_startup_program, program_guard
from argosy.engine.runtime.executor import Executor
from argosy.framework.initializer import Constant
from argosy.framework.layer import create_state

Agree = Callable[..., None]

SAME_NAME = (
    "abs acos asin atan ceil cos cosh digamma erf exp expm1 floor lgamma log log10 log1p log2 neg reciprocal rsqrt "
    "sign sin sinh sqrt square tan tanh trunc isfinite isinf isnan"
)
NEEDS_POSITIVE = {"digamma", "lgamma", "log", "log10", "log1p", "log2", "rsqrt", "sqrt"}
NEEDS_UNIT = {"acos", "asin"}
PAIRS = {
    "atan2": torch.atan2,
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "divide": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "remainder": torch.remainder,
}


@pytest.mark.parametrize("name", SAME_NAME.split())
def test_functions_of_one_variable_are_torch_s(agree: Agree, name: str) -> None:
    kind = "positive" if name in NEEDS_POSITIVE else "unit" if name in NEEDS_UNIT else "normal"
    agree(getattr(tensor, name), getattr(torch, name), ((None, 3), kind))


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("shapes", [((None, 3), (None, 3)), ((2, 1, 3), (None, 1))])
def test_functions_of_two_variables_broadcast_like_torch_s(agree: Agree, name: str, shapes: Any) -> None:
    agree(getattr(tensor, name), PAIRS[name], *shapes)


def test_remainder_has_two_more_names() -> None:
    assert tensor.mod is tensor.floor_mod is tensor.remainder


def test_numbers_may_stand_for_variables(agree: Agree) -> None:
    agree(lambda x: tensor.add(x, 2.0), lambda x: x + 2, (None, 3))
    agree(lambda x: tensor.subtract(2.0, x), lambda x: 2 - x, (None, 3))


@pytest.mark.parametrize("exponent", [2.0, 3, 0.5])
def test_pow_takes_a_number(agree: Agree, exponent: float) -> None:
    agree(lambda x: tensor.pow(x, exponent), lambda x: torch.pow(x, exponent), ((None, 3), "positive"))


def test_pow_takes_a_variable(agree: Agree) -> None:
    agree(tensor.pow, torch.pow, ((None, 3), "positive"), (None, 3))


def test_floor_divide_rounds_down(agree: Agree) -> None:
    agree(lambda x: tensor.floor_divide(x - 4, 3), lambda x: torch.floor_divide(x - 4, 3), ((None, 3), 9))


def test_dividing_integers_gives_the_quotient(agree: Agree) -> None:
    agree(lambda x: tensor.divide(x, 2), lambda x: x / 2, ((None, 3), 9))


def test_round_takes_a_half_away_from_zero() -> None:
    x = tensor.to_tensor([-2.5, -0.5, -0.2, 0.49999997, 0.5, 0.6, 1.5, 2.5])
    (fetched,) = Executor().run(default_main_program(), {}, [tensor.round(x)])
    np.testing.assert_array_equal(fetched, [-3, -1, 0, 0, 1, 1, 2, 3])


@settings(max_examples=30, deadline=None)
@given(arrays("float32", st.integers(1, 20), elements=st.floats(-1e6, 1e6, width=32)))
def test_round_is_never_further_than_a_half(values: np.ndarray[Any, Any]) -> None:
    with program_guard(Program(), Program()):
        (fetched,) = Executor().run(default_main_program(), {}, [tensor.round(tensor.to_tensor(values))])
    assert (np.abs(fetched - values) <= 0.5).all()
    assert (fetched == np.trunc(fetched)).all()


@pytest.mark.parametrize("dtype", ["float64", "int32", "bool", np.float16, torch.int64])
def test_cast_changes_the_dtype(agree: Agree, dtype: Any) -> None:
    from argosy.engine.ir.dtypes import to_dtype

    agree(lambda x: tensor.cast(x, dtype), lambda x: x.to(to_dtype(dtype)), (None, 3), rtol=1e-3)


def test_cast_rejects_what_is_no_dtype() -> None:
    with pytest.raises(ConfigError, match="float31"):
        tensor.cast(tensor.ones([2]), "float31")


@pytest.mark.parametrize("bounds", [(-0.5, 0.5), (None, 0.3), (0.1, None), (None, None)])
def test_clip_holds_x_between_two_bounds(agree: Agree, bounds: tuple[float | None, float | None]) -> None:
    low, high = bounds
    inf = float("inf")
    agree(
        lambda x: tensor.clip(x, low, high),
        lambda x: torch.clamp(x, -inf if low is None else low, inf if high is None else high),
        (None, 3),
    )


def test_clip_takes_a_variable_as_bound(agree: Agree) -> None:
    agree(
        lambda x, m: tensor.clip(x, m, 1.0),
        lambda x, m: x.clamp(min=m).clamp(max=1.0),
        (None, 3),
        ((1,), "unit"),
    )


@pytest.mark.parametrize("bias", [0.0, 0.5])
@pytest.mark.parametrize("after", [True, False])
def test_scale_multiplies_and_adds(agree: Agree, bias: float, after: bool) -> None:
    agree(
        lambda x: tensor.scale(x, 3.0, bias, after, "relu"),
        lambda x: torch.relu(3 * x + bias if after else 3 * (x + bias)),
        (None, 3),
    )


def test_scale_keeps_integers_and_takes_a_variable(agree: Agree) -> None:
    agree(lambda x: tensor.scale(x, 2.0, 1.0), lambda x: 2 * x + 1, ((None, 3), 9))
    agree(tensor.scale, lambda x, s: x * s, (None, 3), (1,))


def test_scale_rejects_an_unknown_activation() -> None:
    with pytest.raises(ConfigError, match="relu"):
        tensor.scale(tensor.ones([2]), act="rely")


def test_stanh_is_a_scaled_tanh(agree: Agree) -> None:
    agree(tensor.stanh, lambda x: 1.7159 * torch.tanh(0.67 * x), (None, 3))


def test_add_n_adds_any_number_of_variables(agree: Agree) -> None:
    agree(lambda *xs: tensor.add_n(xs), lambda *xs: sum(xs), (None, 3), (None, 3), (None, 3))
    agree(tensor.add_n, lambda x: x.clone(), (None, 3))
    with pytest.raises(ConfigError, match="empty"):
        tensor.add_n([])


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_cumsum_adds_up_along_an_axis(agree: Agree, axis: int | None) -> None:
    def expect(x: torch.Tensor) -> torch.Tensor:
        return x.flatten().cumsum(0) if axis is None else x.cumsum(axis)

    agree(lambda x: tensor.cumsum(x, axis), expect, (None, 3))


def test_cumsum_takes_a_dtype_and_rejects_a_wrong_axis(agree: Agree) -> None:
    agree(lambda x: tensor.cumsum(x, 1, "float64"), lambda x: x.cumsum(1, dtype=torch.float64), (None, 3))
    with pytest.raises(ConfigError, match="axis 2"):
        tensor.cumsum(tensor.ones([2, 2]), 2)


def test_addmm_weighs_the_sum_and_the_product(agree: Agree) -> None:
    agree(
        lambda i, x, y: tensor.addmm(i, x, y, 0.5, 2.0),
        lambda i, x, y: 0.5 * i + 2 * (x @ y),
        (4,),
        (None, 3),
        (3, 4),
    )


def test_multiplex_picks_rows_from_several_variables(agree: Agree) -> None:
    def expect(i: torch.Tensor, *xs: torch.Tensor) -> torch.Tensor:
        return torch.stack(xs)[i.flatten(), torch.arange(len(i))]

    agree(lambda i, *xs: tensor.multiplex(xs, i), expect, ((None, 1), 3), (None, 4), (None, 4), (None, 4))


def test_increment_changes_a_variable_of_the_scope() -> None:
    step = create_state("step", [1], "int64", Constant(0))
    assert tensor.increment(step) is step
    exe = Executor()
    exe.run(default_startup_program())
    for expected in (1, 2, 3):
        (fetched,) = exe.run(default_main_program(), {}, [step])
        assert int(fetched) == expected


def test_increment_does_not_touch_what_is_fed() -> None:
    x = default_main_program().data("x", [None], "float32")
    with pytest.raises(ConfigError, match="fed array"):
        tensor.increment(x)


def test_a_name_becomes_the_name_of_the_result() -> None:
    x = tensor.ones([2])
    assert tensor.exp(x, name="mine").name == "mine.tmp_0"
    assert tensor.add(x, x).name == "elementwise_add_0.tmp_0"


@pytest.mark.parametrize("name", tensor.__all__)
def test_every_function_has_a_name_a_docstring_and_a_signature(name: str) -> None:
    function = getattr(tensor, name)
    assert function.__doc__
    assert function.__module__.startswith("argosy.tensor.")
    assert inspect.signature(function).parameters
    if name not in ("mod", "floor_mod", "reverse"):  # other names for remainder and flip
        assert function.__name__ == name


def test_cumprod_is_torch_s(agree: Agree) -> None:
    agree(lambda x: tensor.cumprod(x, 1), lambda x: torch.cumprod(x, 1), ((None, 3), "positive"))


def test_broadcast_shape_is_that_of_the_sum() -> None:
    assert tensor.broadcast_shape([2, 1, 3], [1, 3, 1]) == [2, 3, 3]
    with pytest.raises(ConfigError, match="do not fit"):
        tensor.broadcast_shape([2, 2], [3, 2])

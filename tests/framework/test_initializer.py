"""Initialisers: statistics of samples, fans, seeds, errors."""

# SPDX-License-Identifier: Apache-2.0
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program, default_main_program, default_startup_program, program_guard
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope, global_scope
from argosy.framework import initializer
from argosy.framework.layer import create_parameter

SHAPE = [300, 200]


def started(init: Any, shape: list[int] = SHAPE, dtype: str = "float32") -> torch.Tensor:
    """The value of a parameter after the startup program has run."""
    create_parameter(default_main_program(), "w", shape, dtype, init)
    Executor().run(default_startup_program())
    return global_scope().get("w")


def moments(value: torch.Tensor) -> tuple[float, float]:
    return value.mean().item(), value.std().item()


def test_constants_are_the_same_everywhere() -> None:
    assert torch.equal(started(initializer.Constant(2.5)), torch.full(SHAPE, 2.5))


def test_the_default_constant_is_zero() -> None:
    assert not started(initializer.Constant()).any()


def test_normal_numbers_have_their_mean_and_deviation() -> None:
    value = started(initializer.Normal(1.0, 2.0))
    assert moments(value) == pytest.approx((1, 2), abs=0.03)
    assert (value > 5.5).any()


def test_truncated_normal_numbers_stay_within_two_deviations() -> None:
    value = started(initializer.TruncatedNormal(1.0, 2.0))
    assert -3 <= value.min().item() < -2.9
    assert 4.9 < value.max().item() <= 5
    assert moments(value) == pytest.approx((1, 2 * 0.8796), abs=0.03)


def test_uniform_numbers_fill_their_range() -> None:
    value = started(initializer.Uniform(-1.0, 3.0))
    assert -1 <= value.min().item() < -0.99
    assert 2.99 < value.max().item() <= 3
    assert moments(value) == pytest.approx((1, 4 / math.sqrt(12)), abs=0.02)


@pytest.mark.parametrize(
    ("init", "std"),
    [
        (initializer.Xavier(), math.sqrt(2 / 500)),
        (initializer.XavierUniform(), math.sqrt(2 / 500)),
        (initializer.Xavier(uniform=False), math.sqrt(2 / 500)),
        (initializer.XavierNormal(fan_in=100, fan_out=100), math.sqrt(2 / 200)),
        (initializer.MSRA(), math.sqrt(2 / 300)),
        (initializer.MSRA(uniform=False, fan_in=50), math.sqrt(2 / 50)),
        (initializer.KaimingNormal(), math.sqrt(2 / 300)),
        (initializer.KaimingUniform(), math.sqrt(2 / 300)),
    ],
)
def test_the_deviation_of_xavier_and_msra_follows_from_the_fans(init: Any, std: float) -> None:
    value = started(init)
    assert moments(value) == pytest.approx((0, std), abs=0.01 * std)
    bounded = value.abs().max().item() <= math.sqrt(3) * std * 1.0001
    assert bounded == (init.uniform)


@pytest.mark.parametrize(
    ("shape", "expected"), [([], (1, 1)), ([7], (7, 7)), ([3, 5], (3, 5)), ([8, 4, 3, 2], (24, 48))]
)
def test_fans_are_counted_as_paddle_counts_them(shape: list[int], expected: tuple[int, int]) -> None:
    assert initializer.fans(shape) == expected


@given(st.lists(st.integers(1, 6), min_size=3, max_size=5))
def test_the_fans_of_a_filter_are_torch_s(shape: list[int]) -> None:
    assert initializer.fans(shape) == torch.nn.init._calculate_fan_in_and_fan_out(torch.empty(shape))


def test_an_array_is_copied() -> None:
    array = np.arange(6, dtype="float64").reshape(2, 3)
    value = started(initializer.NumpyArray(array), [2, 3])
    assert value.dtype is torch.float32
    assert torch.equal(value, torch.arange(6.0).view(2, 3))
    value.zero_()
    Executor().run(default_startup_program())
    assert torch.equal(global_scope().get("w"), torch.arange(6.0).view(2, 3))
    assert initializer.Assign is initializer.NumpyArray


@pytest.mark.parametrize(
    "init",
    [
        initializer.Normal(),
        initializer.Uniform(),
        initializer.TruncatedNormal(),
        initializer.Xavier(),
        initializer.MSRA(),
    ],
)
def test_a_seed_gives_the_same_values_on_every_run_of_startup(init: Any) -> None:
    create_parameter(default_main_program(), "w", [5, 4], "float32", init)
    create_parameter(default_main_program(), "v", [5, 4], "float32", init)
    default_startup_program().random_seed = 90
    values: list[torch.Tensor] = []
    for exe in (Executor(), Executor()):
        for scope in (Scope(), Scope()):
            torch.manual_seed(len(values))
            exe.run(default_startup_program(), scope=scope)
            values.append(scope.get("w").clone())
            assert not torch.equal(scope.get("w"), scope.get("v"))
    assert all(torch.equal(values[0], v) for v in values)


def test_another_seed_gives_other_values_and_no_seed_new_ones() -> None:
    def value(seed: int) -> torch.Tensor:
        main, startup, scope = Program(), Program(), Scope()
        startup.random_seed = seed
        with program_guard(main, startup):
            create_parameter(main, "w", [9], "float32", initializer.Normal())
        Executor().run(startup, scope=scope)
        return scope.get("w")

    assert torch.equal(value(1), value(1))
    assert not torch.equal(value(1), value(2))
    assert not torch.equal(value(0), value(0))


def test_values_have_the_dtype_of_the_parameter() -> None:
    assert started(initializer.Normal(), [4], "float64").dtype is torch.float64


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ConfigError, match="low is above high; swap them"):
        initializer.Uniform(1.0, -1.0)
    with pytest.raises(ConfigError, match="std=-1.0 is negative"):
        initializer.Normal(0.0, -1.0)
    with pytest.raises(ConfigError, match="std=-1.0 is negative"):
        initializer.TruncatedNormal(0.0, -1.0)
    with pytest.raises(ConfigError, match=r"NumpyArray of shape \[2\] cannot fill a parameter of \[3\]"):
        started(initializer.NumpyArray([1, 2]), [3])

"""Reductions: over one axis, several, all; one number has shape [1]."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy import tensor
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import Program, default_main_program, program_guard
from argosy.engine.runtime.executor import Executor

Agree = Callable[..., None]

TORCH: dict[str, Callable[..., torch.Tensor]] = {
    "sum": torch.sum,
    "mean": torch.mean,
    "max": torch.amax,
    "min": torch.amin,
    "logsumexp": torch.logsumexp,
    "std": torch.std,
    "var": torch.var,
}
AXES = [None, 0, 1, -1, [0, 2], (1, 2)]
CASES = [(None, False), (None, True), (0, False), (-1, True), ([0, 2], False), ((1, 2), True)]


def shaped(out: torch.Tensor) -> torch.Tensor:
    return out.reshape(1) if out.ndim == 0 else out


def listed(axis: Any, ndim: int = 3) -> tuple[int, ...]:
    return tuple(range(ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize(("axis", "keepdim"), CASES)
def test_reductions_are_torch_s(agree: Agree, name: str, axis: Any, keepdim: bool) -> None:
    def expect(x: torch.Tensor) -> torch.Tensor:
        return shaped(TORCH[name](x, listed(axis), keepdim=keepdim))

    batches = (5, 2) if name in ("std", "var") else (5, 1)  # one number has no unbiased variance
    agree(lambda x: getattr(tensor, name)(x, axis, keepdim=keepdim), expect, (None, 3, 4), batches=batches)


@pytest.mark.parametrize(("axis", "keepdim"), [(None, False), (0, True), ((1, 2), False)])
def test_prod_multiplies(agree: Agree, axis: Any, keepdim: bool) -> None:
    def expect(x: torch.Tensor) -> torch.Tensor:
        for dim in sorted((d % 3 for d in listed(axis)), reverse=True):
            x = x.prod(dim, keepdim)
        return shaped(x)

    agree(lambda x: tensor.prod(x, axis, keepdim), expect, ((None, 3, 2), "positive"))


@pytest.mark.parametrize("name", ["all", "any"])
@pytest.mark.parametrize("axis", AXES)
def test_all_and_any_reduce_truth_values(agree: Agree, name: str, axis: Any) -> None:
    def expect(x: torch.Tensor) -> torch.Tensor:
        return shaped(getattr(torch, name)(x, listed(axis)))

    agree(lambda x: getattr(tensor, name)(x, axis), expect, ((None, 2, 2), bool))


@pytest.mark.parametrize("name", ["std", "var"])
def test_biased_statistics_divide_by_n(agree: Agree, name: str) -> None:
    agree(
        lambda x: getattr(tensor, name)(x, 1, unbiased=False),
        lambda x: getattr(torch, name)(x, 1, correction=0),
        (None, 3),
    )


def test_a_vector_reduces_to_shape_one() -> None:
    assert tensor.sum(tensor.ones([3]), axis=0).shape == (1,)
    assert tensor.mean(tensor.ones([3])).shape == (1,)
    assert tensor.mean(tensor.ones([3, 2]), keepdim=True).shape == (1, 1)


def test_sum_of_integers_is_int64_and_takes_a_dtype(agree: Agree) -> None:
    agree(lambda x: tensor.sum(x, 1), lambda x: x.sum(1), ((None, 3), 9))
    agree(tensor.sum, lambda x: x.sum().reshape(1), ((None, 3), bool))
    agree(
        lambda x: tensor.sum(x, dtype="float64"), lambda x: x.sum(dtype=torch.float64).reshape(1), (None, 3)
    )
    agree(lambda x: tensor.prod(x, 1, dtype="float64"), lambda x: x.prod(1, dtype=torch.float64), (None, 3))


@pytest.mark.parametrize("sizes", [(None, 3), (None, 4)])
@pytest.mark.parametrize(("axis", "keepdim"), [(None, False), (None, True), (0, True), (1, False)])
def test_median_is_the_mean_of_the_middle_two(
    agree: Agree, sizes: Any, axis: int | None, keepdim: bool
) -> None:
    def expect(x: torch.Tensor) -> torch.Tensor:
        return shaped(torch.quantile(x, 0.5, axis, keepdim))

    agree(lambda x: tensor.median(x, axis, keepdim), expect, sizes)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=9))
def test_median_is_numpy_s(numbers: list[int]) -> None:
    with program_guard(Program(), Program()):
        (fetched,) = Executor().run(default_main_program(), {}, [tensor.median(tensor.to_tensor(numbers))])
    assert float(fetched) == np.median(numbers)


def test_median_of_something_that_is_not_a_number_is_none() -> None:
    x = tensor.to_tensor([[1.0, float("nan"), 2.0], [1.0, 2.0, 3.0]])
    (fetched,) = Executor().run(default_main_program(), {}, [tensor.median(x, 1)])
    np.testing.assert_array_equal(fetched, [np.nan, 2.0])


def test_numel_counts_when_it_runs(agree: Agree) -> None:
    agree(tensor.numel, lambda x: torch.tensor([x.numel()]), (None, 3))


def test_a_wrong_axis_is_named_with_the_right_ones() -> None:
    with pytest.raises(ConfigError, match=r"axis 2 of a variable with 2 dimensions; use -2 to 1"):
        tensor.sum(tensor.ones([2, 2]), axis=2)

"""Reductions under 1.x's names."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from argosy.engine.errors import ConfigError
from argosy.engine.runtime.executor import Executor
from argosy.fluid import layers

Agree = Callable[..., None]
TORCH: dict[str, Callable[..., torch.Tensor]] = {
    "sum": torch.sum,
    "mean": torch.mean,
    "max": torch.amax,
    "min": torch.amin,
}


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize(("dim", "keep"), [(0, False), (-1, True), ([0, 2], False), ([-1, 1], True)])
def test_over_dimensions_it_is_torch_s(agree: Agree, name: str, dim: Any, keep: bool) -> None:
    agree(
        lambda x: getattr(layers, f"reduce_{name}")(x, dim, keep),
        lambda x: TORCH[name](x, dim, keepdim=keep),
        (None, 3, 2),
    )


@pytest.mark.parametrize(
    ("name", "everything"), [*((name, None) for name in TORCH), ("sum", []), ("max", [0, 1])]
)
def test_over_everything_it_has_shape_1(agree: Agree, name: str, everything: list[int] | None) -> None:
    agree(
        lambda x: getattr(layers, f"reduce_{name}")(x, everything),
        lambda x: TORCH[name](x, (0, 1)).reshape(1),
        (None, 3),
    )


def test_products_over_several_dimensions(agree: Agree) -> None:
    agree(lambda x: layers.reduce_prod(x, [0, 2]), lambda x: x.prod(2).prod(0), (None, 3, 2))
    agree(layers.reduce_prod, lambda x: x.prod().reshape(1), (None, 3))


def test_the_mean_of_all_has_shape_1_and_mean_s_name(agree: Agree) -> None:
    agree(layers.mean, lambda x: x.mean().reshape(1), (None, 3, 2))
    x = layers.data("x", [3])
    assert layers.mean(x).name == "mean_0.tmp_0"
    assert layers.reduce_mean(x).name == "reduce_mean_0.tmp_0"
    assert layers.reduce_sum(x, name="total").name == "total.tmp_0"


def test_integers_keep_their_dtype() -> None:
    x = layers.data("x", [3], dtype="int32")
    fetched = Executor().run(feed={"x": np.ones((2, 3), dtype="int32")}, fetch_list=[layers.reduce_sum(x)])[0]
    assert fetched.dtype == np.int32
    assert fetched.tolist() == [6]


def test_a_dimension_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="axis 2 of a variable with 2 dimensions"):
        layers.reduce_sum(layers.data("x", [3]), 2)

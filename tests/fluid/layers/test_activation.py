"""Activations and functions of one variable under 1.x's names."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from argosy.fluid import layers

Agree = Callable[..., None]

EXPECTED: dict[str, Callable[..., Any]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softmax": lambda x: torch.softmax(x, -1),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.02),
    "elu": F.elu,
    "gelu": F.gelu,
    "swish": F.silu,
    "relu6": F.relu6,
    "hard_sigmoid": lambda x: (0.2 * x + 0.5).clamp(0, 1),
    "hard_swish": F.hardswish,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "logsigmoid": F.logsigmoid,
    "exp": torch.exp,
    "square": torch.square,
    "abs": torch.abs,
    "sin": torch.sin,
    "cos": torch.cos,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_it_is_torch_s_with_1_x_s_defaults(agree: Agree, name: str) -> None:
    agree(getattr(layers, name), EXPECTED[name], (None, 3, 2))


@pytest.mark.parametrize("name", ["sqrt", "log", "rsqrt", "reciprocal"])
def test_functions_of_positive_numbers(agree: Agree, name: str) -> None:
    agree(getattr(layers, name), getattr(torch, name), ((None, 3), "positive"))


def test_arguments_reach_the_formula(agree: Agree) -> None:
    agree(lambda x: layers.softmax(x, axis=1), lambda x: torch.softmax(x, 1), (None, 3, 2))
    agree(lambda x: layers.leaky_relu(x, 0.3), lambda x: F.leaky_relu(x, 0.3), (None, 3))
    agree(lambda x: layers.elu(x, 0.7), lambda x: F.elu(x, 0.7), (None, 3))
    agree(lambda x: layers.gelu(x, approximate=True), lambda x: F.gelu(x, approximate="tanh"), (None, 3))
    agree(lambda x: layers.swish(x, 1.5), lambda x: x * torch.sigmoid(1.5 * x), (None, 3))
    agree(lambda x: layers.relu6(x, 1.0), lambda x: x.clamp(0, 1), (None, 3))
    agree(lambda x: layers.pow(x, 3.0), lambda x: x**3, (None, 3))
    agree(layers.pow, torch.pow, ((None, 3), "positive"), (1,))


def test_a_name_is_the_result_s() -> None:
    x = layers.data("x", [3])
    assert layers.relu(x, name="act").name == "act.tmp_0"
    assert layers.softmax(x).name == "softmax_0.tmp_0"


MORE: dict[str, Callable[..., Any]] = {
    "brelu": lambda x: x.clamp(0, 24),
    "soft_relu": F.softplus,
    "softshrink": F.softshrink,
    "hard_shrink": F.hardshrink,
    "thresholded_relu": lambda x: F.threshold(x, 1.0, 0.0),
    "mish": F.mish,
    "selu": F.selu,
    "tanh_shrink": F.tanhshrink,
    "cumsum": lambda x: x.cumsum(-1),
    "erf": torch.erf,
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "stanh": lambda x: 1.7159 * torch.tanh(0.67 * x),
}


def test_the_others_are_torch_s_too(agree: Agree) -> None:
    agree(
        lambda x: [getattr(layers, name)(x) for name in MORE],
        lambda x: [function(x) for function in MORE.values()],
        (None, 4),
    )


def test_maxout_and_cumsum_with_arguments(agree: Agree) -> None:
    def exclusive(x: torch.Tensor) -> torch.Tensor:
        return x.flip(1).cumsum(1).flip(1) - x

    agree(
        lambda x: [layers.maxout(x, 2), layers.cumsum(x, axis=1, exclusive=True, reverse=True)],
        lambda x: [x.reshape(-1, 2, 2, 3).amax(2), exclusive(x)],
        (None, 4, 3),
    )

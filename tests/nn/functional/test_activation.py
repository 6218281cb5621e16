"""Activations against torch, with two batch sizes, gradients included."""

# SPDX-License-Identifier: Apache-2.0
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from argosy import tensor
from argosy.engine.errors import ConfigError
from argosy.nn import functional

Agree = Callable[..., None]

CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "relu": (functional.relu, torch.relu),
    "relu6": (lambda x: functional.relu6(x * 4), lambda x: F.relu6(x * 4)),
    "sigmoid": (functional.sigmoid, torch.sigmoid),
    "log_sigmoid": (functional.log_sigmoid, F.logsigmoid),
    "hardswish": (functional.hardswish, F.hardswish),
    "silu": (functional.silu, F.silu),
    "swish": (functional.swish, F.silu),
    "mish": (functional.mish, F.mish),
    "softsign": (functional.softsign, F.softsign),
    "tanh": (functional.tanh, torch.tanh),
    "tanhshrink": (functional.tanhshrink, F.tanhshrink),
    "elu": (lambda x: functional.elu(x, 0.3), lambda x: F.elu(x, 0.3)),
    "selu": (functional.selu, F.selu),
    "selu with its own numbers": (
        lambda x: functional.selu(x, 2.0, 3.0),
        lambda x: 2 * torch.where(x > 0, x, 3 * (x.exp() - 1)),
    ),
    "gelu": (functional.gelu, F.gelu),
    "gelu by tanh": (lambda x: functional.gelu(x, True), lambda x: F.gelu(x, approximate="tanh")),
    "hardsigmoid": (functional.hardsigmoid, F.hardsigmoid),
    "hardsigmoid of fluid": (
        lambda x: functional.hardsigmoid(x * 3, 0.2, 0.5),
        lambda x: (x * 3 * 0.2 + 0.5).clamp(0, 1),
    ),
    "leaky_relu": (lambda x: functional.leaky_relu(x, 0.2), lambda x: F.leaky_relu(x, 0.2)),
    "hardtanh": (lambda x: functional.hardtanh(x, -0.5, 0.7), lambda x: F.hardtanh(x, -0.5, 0.7)),
    "hardshrink": (lambda x: functional.hardshrink(x, 0.3), lambda x: F.hardshrink(x, 0.3)),
    "softshrink": (lambda x: functional.softshrink(x, 0.3), lambda x: F.softshrink(x, 0.3)),
    "thresholded_relu": (lambda x: functional.thresholded_relu(x, 0.4), lambda x: F.threshold(x, 0.4, 0.0)),
    "softplus": (lambda x: functional.softplus(x, 2, 1), lambda x: F.softplus(x, 2, 1)),
    "softmax": (functional.softmax, lambda x: torch.softmax(x, -1)),
    "softmax along the batch": (lambda x: functional.softmax(x, 0), lambda x: torch.softmax(x, 0)),
    "softmax in float64": (
        lambda x: functional.softmax(x, dtype="float64"),
        lambda x: torch.softmax(x, -1, dtype=torch.float64),
    ),
    "log_softmax": (lambda x: functional.log_softmax(x, 1), lambda x: torch.log_softmax(x, 1)),
    "log_softmax in float64": (
        lambda x: functional.log_softmax(x, dtype="float64"),
        lambda x: torch.log_softmax(x, -1, dtype=torch.float64),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_activations_are_torch_s(agree: Agree, case: str) -> None:
    agree(*CASES[case], (None, 3, 4), rtol=2e-5)


@pytest.mark.parametrize("weights", [(1,), (3,)])
def test_prelu_has_one_slope_or_one_for_each_channel(agree: Agree, weights: tuple[int]) -> None:
    agree(functional.prelu, F.prelu, (None, 3, 4), weights)


@pytest.mark.parametrize("axis", [1, -1])
def test_maxout_takes_the_greatest_of_neighbours(agree: Agree, axis: int) -> None:
    def expect(x: torch.Tensor) -> torch.Tensor:
        x = x.movedim(axis, -1)
        return torch.maximum(x[..., ::2], x[..., 1::2]).movedim(-1, axis)

    agree(lambda x: functional.maxout(x, 2, axis), expect, (None, 4, 4))


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ConfigError, match="groups of 3"):
        functional.maxout(tensor.ones([2, 4]), 3)
    with pytest.raises(ConfigError, match="negative"):
        functional.softshrink(tensor.ones([2]), -1.0)


@pytest.mark.parametrize("name", functional.__all__)
def test_every_function_has_a_name_a_docstring_and_a_signature(name: str) -> None:
    function = getattr(functional, name)
    assert function.__doc__
    assert function.__name__ == name
    assert function.__module__.startswith("argosy.nn.functional.")
    assert inspect.signature(function).parameters

"""Activations as layers, against torch."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from argosy import nn, static

Agree = Callable[..., None]

ACTIVATIONS: list[tuple[Any, Callable[..., torch.Tensor]]] = [
    (nn.ReLU(), torch.relu),
    (nn.ReLU6(), F.relu6),
    (nn.LeakyReLU(0.2), lambda x: F.leaky_relu(x, 0.2)),
    (nn.ThresholdedReLU(0.3), lambda x: F.threshold(x, 0.3, 0.0)),
    (nn.ELU(0.5), lambda x: F.elu(x, 0.5)),
    (nn.SELU(), F.selu),
    (nn.GELU(True), lambda x: F.gelu(x, approximate="tanh")),
    (nn.Sigmoid(), torch.sigmoid),
    (nn.LogSigmoid(), F.logsigmoid),
    (nn.Hardsigmoid(), F.hardsigmoid),
    (nn.Hardswish(), F.hardswish),
    (nn.Swish(), F.silu),
    (nn.Silu(), F.silu),
    (nn.Mish(), F.mish),
    (nn.Tanh(), torch.tanh),
    (nn.Tanhshrink(), F.tanhshrink),
    (nn.Hardtanh(-0.5, 0.7), lambda x: F.hardtanh(x, -0.5, 0.7)),
    (nn.Hardshrink(0.3), lambda x: F.hardshrink(x, 0.3)),
    (nn.Softshrink(0.3), lambda x: F.softshrink(x, 0.3)),
    (nn.Softplus(2, 3), lambda x: F.softplus(x, 2, 3)),
    (nn.Softsign(), F.softsign),
    (nn.Softmax(1), lambda x: torch.softmax(x, 1)),
    (nn.LogSoftmax(), lambda x: torch.log_softmax(x, -1)),
    (nn.Maxout(2), lambda x: x.unflatten(1, (-1, 2)).amax(2)),
]


@pytest.mark.parametrize(("layer", "expected"), ACTIVATIONS)
def test_activations_are_torch_s(
    agree: Agree, layer: nn.Layer, expected: Callable[..., torch.Tensor]
) -> None:
    agree(layer, expected, (None, 4, 3), rtol=2e-5)


def test_arguments_are_shown_and_the_name_is_the_result_s() -> None:
    layer = nn.LeakyReLU(0.2, name="slope")
    assert repr(layer) == "LeakyReLU(negative_slope=0.2, name=slope)"
    assert layer(static.data("x", [None, 3])).name == "slope.tmp_0"

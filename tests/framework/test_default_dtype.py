"""set_default_dtype decides the dtype of parameters, feeds and created tensors."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

import argosy as paddle
from argosy.engine.errors import ConfigError


def test_parameters_and_created_tensors_have_it() -> None:
    assert paddle.get_default_dtype() == "float32"
    paddle.set_default_dtype("float64")
    try:
        assert paddle.get_default_dtype() == "float64"
        x = paddle.static.data("x", [None, 3])
        linear = paddle.nn.Linear(3, 2)
        for variable in (
            x,
            linear.weight,
            linear(x),
            paddle.ones([2]),
            paddle.to_tensor([1.5]),
            paddle.rand([2]),
        ):
            assert variable.dtype == torch.float64
        assert paddle.nn.BatchNorm2D(3)._mean.dtype == torch.float64
    finally:
        paddle.set_default_dtype(torch.float32)
    with pytest.raises(ConfigError, match="use 'float16'"):
        paddle.set_default_dtype("int64")

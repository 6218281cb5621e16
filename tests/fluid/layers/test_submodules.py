"""fluid.layers.nn and others have the functions of fluid.layers."""

# SPDX-License-Identifier: Apache-2.0
import importlib

import pytest

from argosy.engine.errors import UnknownNameError
from argosy.fluid import layers


def test_they_give_the_functions_of_fluid_layers() -> None:
    for name, function in (
        ("nn", "fc"),
        ("ops", "exp"),
        ("tensor", "concat"),
        ("loss", "cross_entropy"),
        ("loss", "mse_loss"),
        ("metric_op", "accuracy"),
        ("learning_rate_scheduler", "noam_decay"),
    ):
        module = importlib.import_module(f"argosy.fluid.layers.{name}")
        assert getattr(layers, name) is module
        assert getattr(module, function) is getattr(layers, function)


def test_an_unknown_name_is_an_error_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="argosy.fluid.layers.fcc is not in Argosy .did you mean 'fc'"):
        _ = layers.nn.fcc

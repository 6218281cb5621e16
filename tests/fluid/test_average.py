"""WeightedAverage."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from argosy.engine.errors import ConfigError
from argosy.fluid.average import WeightedAverage


def test_the_mean_has_weights() -> None:
    average = WeightedAverage()
    average.add(2.0, 1)
    average.add(np.array([5.0]), 2)
    np.testing.assert_allclose(average.eval(), [4.0])
    average.reset()
    for call, message in (
        (average.eval, "add a value first"),
        (lambda: average.add("x", 1), "give a number or an array"),
        (lambda: average.add(1.0, "x"), "give a number"),  # type: ignore[arg-type]  # the error
    ):
        with pytest.raises(ConfigError, match=message):
            call()

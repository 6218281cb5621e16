"""fluid.average.WeightedAverage: the mean of numbers or arrays with weights, outside of programs."""

# SPDX-License-Identifier: Apache-2.0
import numbers
from typing import Any

import numpy as np

from argosy.engine.errors import ConfigError
from argosy.framework.missing import missing


class WeightedAverage:
    """sum(value · weight) / sum(weight) of the values added since `reset`; values are numbers or arrays."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all values."""
        self._total: Any = 0.0
        self._weight = 0.0

    def add(self, value: Any, weight: float) -> None:
        """Add a value."""
        if not isinstance(value, np.ndarray | numbers.Real):
            raise ConfigError(f"WeightedAverage.add: value is {value!r}; give a number or an array")
        if not isinstance(weight, numbers.Real):
            raise ConfigError(f"WeightedAverage.add: weight is {weight!r}; give a number")
        self._total = self._total + value * weight
        self._weight += float(weight)

    def eval(self) -> Any:
        """The mean."""
        if self._weight == 0:
            raise ConfigError(
                "WeightedAverage.eval: nothing was added, or the weights add up to 0; add a value first"
            )
        return self._total / self._weight


__all__ = ["WeightedAverage"]
__getattr__ = missing(__name__, globals())

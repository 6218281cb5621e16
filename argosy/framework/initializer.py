"""Initializers: compute the initial value of a parameter in the startup program.

An initializer takes a shape and a dtype and returns a tensor; the startup program records its torch operators as
nodes.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from argosy.engine.errors import ConfigError


class Initializer(Protocol):
    """A callable that returns a tensor of a given shape and dtype."""

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor: ...


class Constant:
    """All elements equal to `value`."""

    def __init__(self, value: float = 0.0) -> None:
        self.value = value

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.full(tuple(shape), self.value, dtype=dtype)


class Normal:
    """Gaussian with this mean and standard deviation."""

    def __init__(self, mean: float = 0.0, std: float = 1.0) -> None:
        self.mean, self.std = mean, _positive("std", std)

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(tuple(shape), dtype=dtype).normal_(self.mean, self.std)


class TruncatedNormal:
    """Gaussian, truncated at two standard deviations from the mean."""

    def __init__(self, mean: float = 0.0, std: float = 1.0) -> None:
        self.mean, self.std = mean, _positive("std", std)

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        edge = math.erf(2 / math.sqrt(2))  # by the inverse of the distribution function, within the two edges
        drawn = torch.empty(tuple(shape), dtype=dtype).uniform_(-edge, edge).erfinv_()
        return drawn.mul_(self.std * math.sqrt(2)).clamp_(-2 * self.std, 2 * self.std).add_(self.mean)


class Uniform:
    """Uniform between low and high."""

    def __init__(self, low: float = -1.0, high: float = 1.0) -> None:
        if low > high:
            raise ConfigError(f"Uniform({low}, {high}): low is above high; swap them")
        self.low, self.high = low, high

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(tuple(shape), dtype=dtype).uniform_(self.low, self.high)


class Xavier:
    """Glorot and Bengio 2010: variance 2 / (fan_in + fan_out), uniform or Gaussian."""

    def __init__(
        self, uniform: bool = True, fan_in: float | None = None, fan_out: float | None = None
    ) -> None:
        self.uniform, self.fan_in, self.fan_out = uniform, fan_in, fan_out

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        fan_in, fan_out = fans(shape)
        total = (self.fan_in or fan_in) + (self.fan_out or fan_out)
        if self.uniform:
            limit = math.sqrt(6.0 / total)
            return Uniform(-limit, limit)(shape, dtype)
        return Normal(0.0, math.sqrt(2.0 / total))(shape, dtype)


class XavierNormal(Xavier):
    """Xavier, Gaussian."""

    def __init__(self, fan_in: float | None = None, fan_out: float | None = None) -> None:
        super().__init__(False, fan_in, fan_out)


class XavierUniform(Xavier):
    """Xavier, uniform."""

    def __init__(self, fan_in: float | None = None, fan_out: float | None = None) -> None:
        super().__init__(True, fan_in, fan_out)


class MSRA:
    """He et al. 2015: variance 2 / fan_in, uniform or Gaussian."""

    def __init__(self, uniform: bool = True, fan_in: float | None = None) -> None:
        self.uniform, self.fan_in = uniform, fan_in

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        fan_in = self.fan_in or fans(shape)[0]
        if self.uniform:
            limit = math.sqrt(6.0 / fan_in)
            return Uniform(-limit, limit)(shape, dtype)
        return Normal(0.0, math.sqrt(2.0 / fan_in))(shape, dtype)


class KaimingNormal(MSRA):
    """MSRA, Gaussian."""

    def __init__(self, fan_in: float | None = None) -> None:
        super().__init__(False, fan_in)


class KaimingUniform(MSRA):
    """MSRA, uniform."""

    def __init__(self, fan_in: float | None = None) -> None:
        super().__init__(True, fan_in)


class NumpyArray:
    """The values of an array, or of anything that NumPy can convert to one."""

    def __init__(self, value: Any) -> None:
        self.value = np.asarray(value)

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        if self.value.shape != tuple(shape):
            raise ConfigError(
                f"NumpyArray of shape {list(self.value.shape)} cannot fill a parameter of {list(shape)}"
            )
        return torch.from_numpy(self.value.copy()).to(dtype).clone()


Assign = NumpyArray


def fans(shape: Sequence[int]) -> tuple[int, int]:
    """(fan_in, fan_out) as Paddle counts them: a matrix is [in, out], a filter [out, in, height, width]."""
    if len(shape) < 2:
        size = shape[0] if shape else 1
        return size, size
    if len(shape) == 2:
        return shape[0], shape[1]
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def _positive(name: str, value: float) -> float:
    if value < 0:
        raise ConfigError(f"{name}={value} is negative; use 0 or more")
    return value

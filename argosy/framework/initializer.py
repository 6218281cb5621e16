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

from argosy.engine.errors import ArgumentTypeError, ConfigError
from argosy.framework import random
from argosy.framework.checks import integer


class Initializer(Protocol):
    """A callable that returns a tensor of a given shape and dtype."""

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor: ...


class Constant:
    """All elements equal to `value`."""

    def __init__(self, value: float = 0.0) -> None:
        self.value = value

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.full(tuple(shape), self.value, dtype=dtype)


class RandomInitializer:
    """The base of initializers that draw numbers. With a `seed` other than 0 they are the same in every program."""

    seed: int = 0

    def set_seed(self, seed: int) -> None:
        self.seed = integer(f"{type(self).__name__}: seed", seed)

    def _uniform(self, shape: Sequence[int], dtype: torch.dtype, low: float, high: float) -> torch.Tensor:
        if self.seed:
            return random.uniform(shape, dtype, low, high, self.seed)
        return torch.empty(tuple(shape), dtype=dtype).uniform_(low, high)

    def _normal(self, shape: Sequence[int], dtype: torch.dtype, mean: float, std: float) -> torch.Tensor:
        if self.seed:
            return random.normal(shape, dtype, mean, std, self.seed)
        return torch.empty(tuple(shape), dtype=dtype).normal_(mean, std)


class Normal(RandomInitializer):
    """Gaussian with this mean and standard deviation."""

    def __init__(self, mean: float = 0.0, std: float = 1.0, name: str | None = None) -> None:
        self.mean, self.std = mean, _positive("std", std)

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return self._normal(shape, dtype, self.mean, self.std)


class TruncatedNormal(RandomInitializer):
    """Gaussian, truncated at two standard deviations from the mean."""

    def __init__(self, mean: float = 0.0, std: float = 1.0, name: str | None = None) -> None:
        self.mean, self.std = mean, _positive("std", std)

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        edge = math.erf(2 / math.sqrt(2))  # by the inverse of the distribution function, within the two edges
        drawn = self._uniform(shape, dtype, -edge, edge).erfinv_()
        return drawn.mul_(self.std * math.sqrt(2)).clamp_(-2 * self.std, 2 * self.std).add_(self.mean)


class Uniform(RandomInitializer):
    """Uniform between low and high."""

    def __init__(self, low: float = -1.0, high: float = 1.0, name: str | None = None) -> None:
        if low > high:
            raise ConfigError(f"Uniform({low}, {high}): low is above high; swap them")
        self.low, self.high = low, high

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return self._uniform(shape, dtype, self.low, self.high)


class _ByFans(RandomInitializer):
    """Uniform or Gaussian with variance 2 / fan."""

    uniform: bool

    def fan(self, shape: Sequence[int]) -> float:
        """The number of connections of a parameter of this shape that count."""
        raise NotImplementedError(f"{type(self).__name__} has no fan(shape); define it")

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        if self.uniform:
            limit = math.sqrt(6.0 / self.fan(shape))
            return self._uniform(shape, dtype, -limit, limit)
        return self._normal(shape, dtype, 0.0, math.sqrt(2.0 / self.fan(shape)))


class Xavier(_ByFans):
    """Glorot and Bengio 2010: variance 2 / (fan_in + fan_out), uniform or Gaussian."""

    def __init__(
        self, uniform: bool = True, fan_in: float | None = None, fan_out: float | None = None
    ) -> None:
        self.uniform, self.fan_in, self.fan_out = uniform, fan_in, fan_out

    def fan(self, shape: Sequence[int]) -> float:
        fan_in, fan_out = fans(shape)
        return (self.fan_in or fan_in) + (self.fan_out or fan_out)


class XavierNormal(Xavier):
    """Xavier, Gaussian."""

    def __init__(
        self, fan_in: float | None = None, fan_out: float | None = None, name: str | None = None
    ) -> None:
        super().__init__(False, fan_in, fan_out)


class XavierUniform(Xavier):
    """Xavier, uniform."""

    def __init__(
        self, fan_in: float | None = None, fan_out: float | None = None, name: str | None = None
    ) -> None:
        super().__init__(True, fan_in, fan_out)


class MSRA(_ByFans):
    """He et al. 2015: variance 2 / fan_in, uniform or Gaussian."""

    def __init__(self, uniform: bool = True, fan_in: float | None = None) -> None:
        self.uniform, self.fan_in = uniform, fan_in

    def fan(self, shape: Sequence[int]) -> float:
        return self.fan_in or fans(shape)[0]


class KaimingNormal(MSRA):
    """MSRA, Gaussian."""

    def __init__(self, fan_in: float | None = None) -> None:
        super().__init__(False, fan_in)


class KaimingUniform(MSRA):
    """MSRA, uniform."""

    def __init__(self, fan_in: float | None = None) -> None:
        super().__init__(True, fan_in)


class Bilinear:
    """The weights of a transposed convolution that resizes images bilinearly: [channels, any, size, size]."""

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        if len(shape) != 4 or shape[2] != shape[3]:
            raise ConfigError(
                f"Bilinear: a parameter of shape {list(shape)} is not [channels, any, size, size]"
            )
        size, factor = shape[3], math.ceil(shape[3] / 2)
        center = (2 * factor - 1 - factor % 2) / (2 * factor)
        line = 1 - (torch.arange(size, dtype=torch.float64) / factor - center).abs()
        return (line[:, None] * line[None, :]).expand(tuple(shape)).to(dtype).clone()


class NumpyArray:
    """The values of an array, or of anything that NumPy can convert to one."""

    def __init__(self, value: Any, name: str | None = None) -> None:
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


_global: dict[bool, Initializer | None] = {False: None, True: None}


def set_global_initializer(weight_init: Initializer | None, bias_init: Initializer | None = None) -> None:
    """The initializers of parameters that are built from now on and whose ParamAttr has none; None: the layers' own.

    `bias_init` is for biases, `weight_init` for all other parameters.
    """
    for what, given in (("weight_init", weight_init), ("bias_init", bias_init)):
        if given is not None and not callable(given):
            raise ArgumentTypeError(
                f"set_global_initializer: {what} is {given!r}; give an initializer or None"
            )
    _global.update({False: weight_init, True: bias_init})


def global_initializer(is_bias: bool) -> Initializer | None:
    """The initializer that `set_global_initializer` has set."""
    return _global[is_bias]


def _positive(name: str, value: float) -> float:
    if value < 0:
        raise ConfigError(f"{name}={value} is negative; use 0 or more")
    return value

"""fluid.initializer: the initializers with the names and arguments of 1.x, such as `Normal(loc, scale, seed)`."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from contextlib import contextmanager

from argosy.engine.errors import UnsupportedError
from argosy.framework import initializer
from argosy.framework.initializer import Bilinear, NumpyArray, set_global_initializer
from argosy.framework.missing import missing

__all__ = [
    "MSRA",
    "Bilinear",
    "BilinearInitializer",
    "Constant",
    "ConstantInitializer",
    "MSRAInitializer",
    "Normal",
    "NormalInitializer",
    "NumpyArray",
    "NumpyArrayInitializer",
    "TruncatedNormal",
    "TruncatedNormalInitializer",
    "Uniform",
    "UniformInitializer",
    "Xavier",
    "XavierInitializer",
    "force_init_on_cpu",
    "init_on_cpu",
    "set_global_initializer",
]


class ConstantInitializer(initializer.Constant):
    """All elements equal to `value`; `force_cpu` has no effect: initial values are computed on the executor's place."""

    def __init__(self, value: float = 0.0, force_cpu: bool = False) -> None:
        super().__init__(value)


class UniformInitializer(initializer.Uniform):
    """Uniform between low and high; with a `seed` other than 0 the same numbers in every program."""

    def __init__(
        self,
        low: float = -1.0,
        high: float = 1.0,
        seed: int = 0,
        diag_num: int = 0,
        diag_step: int = 0,
        diag_val: float = 1.0,
    ) -> None:
        if diag_num:
            raise UnsupportedError(
                f"Uniform: diag_num={diag_num} is not supported; give the values with NumpyArrayInitializer"
            )
        super().__init__(low, high)
        self.set_seed(seed)


class NormalInitializer(initializer.Normal):
    """Gaussian with mean `loc` and standard deviation `scale`; `seed` as in Uniform."""

    def __init__(self, loc: float = 0.0, scale: float = 1.0, seed: int = 0) -> None:
        super().__init__(loc, scale)
        self.set_seed(seed)


class TruncatedNormalInitializer(initializer.TruncatedNormal):
    """Gaussian, truncated at two standard deviations `scale` from the mean `loc`; `seed` as in Uniform."""

    def __init__(self, loc: float = 0.0, scale: float = 1.0, seed: int = 0) -> None:
        super().__init__(loc, scale)
        self.set_seed(seed)


class XavierInitializer(initializer.Xavier):
    """Variance 2 / (fan_in + fan_out), uniform or Gaussian; `seed` as in Uniform."""

    def __init__(
        self,
        uniform: bool = True,
        fan_in: float | None = None,
        fan_out: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(uniform, fan_in, fan_out)
        self.set_seed(seed)


class MSRAInitializer(initializer.MSRA):
    """Variance 2 / fan_in, uniform or Gaussian; `seed` as in Uniform."""

    def __init__(self, uniform: bool = True, fan_in: float | None = None, seed: int = 0) -> None:
        super().__init__(uniform, fan_in)
        self.set_seed(seed)


def force_init_on_cpu() -> bool:
    """False: initial values are computed on the executor's place."""
    return False


@contextmanager
def init_on_cpu() -> Iterator[None]:
    """No effect: a startup program runs on the executor's place; for scripts of Paddle before 1.6."""
    yield


Constant = ConstantInitializer
Uniform = UniformInitializer
Normal = NormalInitializer
TruncatedNormal = TruncatedNormalInitializer
Xavier = XavierInitializer
MSRA = MSRAInitializer
BilinearInitializer = Bilinear
NumpyArrayInitializer = NumpyArray

__getattr__ = missing(__name__, globals())

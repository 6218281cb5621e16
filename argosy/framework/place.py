"""Places: where a program runs."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass

import torch

from argosy.engine.errors import ArgumentTypeError
from argosy.engine.log import logger


@dataclass(frozen=True)
class CPUPlace:
    """The CPU."""

    def device(self) -> torch.device:
        return torch.device("cpu")

    def __str__(self) -> str:
        return "CPUPlace"


_warned: set[int] = set()


@dataclass(frozen=True)
class CUDAPlace:
    """A GPU; on a machine without one the CPU, with a warning."""

    id: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.id, int) or self.id < 0:
            raise ArgumentTypeError(f"CUDAPlace({self.id!r}): give the number of a GPU, 0 or more")

    def device(self) -> torch.device:
        if torch.cuda.is_available():
            return torch.device("cuda", self.id)
        if self.id not in _warned:
            _warned.add(self.id)
            logger.warning("%s: this machine has no GPU that torch can use; running on the CPU", self)
        return torch.device("cpu")

    def __str__(self) -> str:
        return f"CUDAPlace({self.id})"


@dataclass(frozen=True)
class CUDAPinnedPlace:
    """Page-locked memory of the host, from which GPUs copy faster; here ordinary memory of the CPU."""

    def device(self) -> torch.device:
        return torch.device("cpu")

    def __str__(self) -> str:
        return "CUDAPinnedPlace"


Place = CPUPlace | CUDAPlace | CUDAPinnedPlace


def is_compiled_with_cuda() -> bool:
    """True if this torch can use GPUs."""
    return bool(torch.backends.cuda.is_built())


def is_compiled_with_xpu() -> bool:
    """False: there are no kernels for Baidu's XPUs."""
    return False


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """A list of CPU places, one by default."""
    return [CPUPlace()] * (device_count or 1)


def cuda_places(device_ids: list[int] | None = None) -> list[CUDAPlace]:
    """A place for each GPU."""
    return [
        CUDAPlace(i) for i in (device_ids if device_ids is not None else range(torch.cuda.device_count()))
    ]

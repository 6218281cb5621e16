"""paddle.device: the device that programs run on."""

# SPDX-License-Identifier: Apache-2.0
import re

import torch

from argosy.engine.errors import ConfigError
from argosy.framework.missing import missing
from argosy.framework.place import CPUPlace, CUDAPlace, is_compiled_with_cuda, is_compiled_with_xpu


def set_device(device: str) -> CPUPlace | CUDAPlace:
    """Accept "cpu", and on a machine without a GPU "gpu" or "gpu:0" too: the CPU runs the programs, with a warning.

    Where torch has a GPU, it is chosen by the place of the executor.
    """
    if device == "cpu":
        return CPUPlace()
    if not (match := re.fullmatch(r"gpu(?::(\d+))?", device)):
        raise ConfigError(f"set_device({device!r}): use 'cpu', or 'gpu' or 'gpu:0' with a GPU")
    place = CUDAPlace(int(match[1] or 0))
    if torch.cuda.is_available():
        raise ConfigError(f"set_device({device!r}): give the place to the executor: static.Executor({place})")
    place.device()
    return place


def get_device() -> str:
    """The device of an executor without a place: "cpu"."""
    return "cpu"


__all__ = ["get_device", "is_compiled_with_cuda", "is_compiled_with_xpu", "set_device"]
__getattr__ = missing(__name__, globals())

"""The memory format of the results of image kernels: the same that torch's own kernels choose."""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor


def memory_format_of(x: Tensor) -> torch.memory_format:
    """channels_last or channels_last_3d if x is so; else contiguous."""
    return torch._prims_common.suggest_memory_format(x)


def empty_as(x: Tensor) -> Tensor:
    """An uninitialised tensor of x's shape, dtype and memory format."""
    return torch.empty_like(x, memory_format=memory_format_of(x))

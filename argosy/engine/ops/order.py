"""How the results of image kernels lie in memory: as torch's own lay theirs."""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor


def order_of(x: Tensor) -> torch.memory_format:
    """channels_last, for images or volumes, if x is so; else contiguous."""
    return torch._prims_common.suggest_memory_format(x)


def empty_as(x: Tensor) -> Tensor:
    """Memory for a result of x's shape."""
    return torch.empty_like(x, memory_format=order_of(x))

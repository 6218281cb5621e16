"""Memory formats: those of the results of image kernels, and of tensors that a kernel reads together.

The result of an image kernel has the same memory format that torch's own kernels choose.

torch's fused optimizer kernels pair the i-th element in memory of each tensor. A channels_last weight and a contiguous
gradient have the same shape but different strides, so `match_layout` converts one of them to the layout of the other.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_FORMATS = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)


def memory_format_of(x: Tensor) -> torch.memory_format:
    """channels_last or channels_last_3d if x is so; else contiguous."""
    return torch._prims_common.suggest_memory_format(x)


def empty_as(x: Tensor) -> Tensor:
    """An uninitialised tensor of x's shape, dtype and memory format."""
    return torch.empty_like(x, memory_format=memory_format_of(x))


def match_layout(update: Callable[..., None], param: Tensor, grad: Tensor, *states: Tensor) -> None:
    """update(param, grad, *states), all in the memory format of `param`; mutated copies are written back."""
    tensors = (param, grad, *states)
    _check_shapes(tensors)
    if all(map(Tensor.is_contiguous, tensors)):
        update(*tensors)
        return
    for memory_format in _FORMATS:
        if param.is_contiguous(memory_format=memory_format):
            break
    else:
        memory_format = torch.contiguous_format
    converted = [t.contiguous(memory_format=memory_format) for t in tensors]  # no copy if it matches already
    update(*converted)
    for index, tensor in enumerate(tensors):
        if converted[index] is not tensor and tensor is not grad:
            tensor.copy_(converted[index])


def _check_shapes(tensors: Sequence[Tensor]) -> None:
    """Raise ValueError if shapes differ: the kernel would read past the end of a smaller tensor.

    The executor adds the node and its source line to the message.
    """
    shape = tensors[0].shape
    for other in tensors[1:]:
        if other.shape != shape:
            raise ValueError(
                f"a parameter of shape {list(shape)} has a gradient or state of shape {list(other.shape)}; "
                "they must be equal: run the startup program again, or load a state of this model"
            )

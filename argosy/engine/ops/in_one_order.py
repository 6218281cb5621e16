"""Call a kernel that walks raw memory on tensors whose elements lie in one order.

torch's fused optimizer kernels pair the i-th element in memory of each tensor. A channels_last weight and
a contiguous gradient have the same shape but another order, so one of them is brought into the other's.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_FORMATS = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)


def in_one_order(update: Callable[..., None], param: Tensor, grad: Tensor, *states: Tensor) -> None:
    """update(param, grad, *states), all in the order of `param`; what changes in a copy is written back."""
    tensors = (param, grad, *states)
    _check_shapes(tensors)
    for order in _FORMATS:
        if param.is_contiguous(memory_format=order):
            break
    else:
        order = torch.contiguous_format
    used = [t.contiguous(memory_format=order) for t in tensors]  # itself, if it is in this order already
    update(*used)
    for place, old in enumerate(tensors):
        if used[place] is not old and old is not grad:
            old.copy_(used[place])


def _check_shapes(tensors: Sequence[Tensor]) -> None:
    """A smaller tensor would be read past its end. The executor adds the node and its line to the message."""
    shape = tensors[0].shape
    for other in tensors[1:]:
        if other.shape != shape:
            raise ValueError(
                f"a parameter of shape {list(shape)} has a gradient or state of shape {list(other.shape)}; "
                "they must be equal: run the startup program again, or load a state of this model"
            )

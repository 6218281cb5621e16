"""batch_norm_recompute: recompute the output of a batch norm from the saved statistics.

    y = x · scale + shift          scale = weight · invstd, shift = bias - mean · scale; as ATen computes it

One pass over memory where the norm itself takes two.
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
from torch import Tensor

from argosy.engine.ops.memory_format import empty_as, memory_format_of
from argosy.engine.ops.op_spec import OpSpec, declare


def _kernel(x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor) -> Tensor:
    scale = invstd if weight is None else invstd * weight
    shift = -mean * scale if bias is None else torch.addcmul(bias, mean, scale, value=-1)
    shape = (-1, *[1] * (x.ndim - 2))
    x = x.contiguous(memory_format=memory_format_of(x))
    return torch.addcmul(shift.view(shape), x, scale.view(shape)).to(
        x.dtype
    )  # statistics of 16-bit x are float32


def _fake(x: Tensor, *rest: Any) -> Tensor:
    return empty_as(x)


batch_norm_recompute = declare(
    "batch_norm_recompute(Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor invstd) -> Tensor",
    _kernel,
    _fake,
)
SPEC = OpSpec(batch_norm_recompute, _kernel)

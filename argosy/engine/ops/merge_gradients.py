"""accumulate, merged: add up the gradients of several steps.

    accumulate(total, g)            total += g
    m = merged(total, g, 0.25)      m = 0.25 (total + g), and total = 0 for the next steps

`total` is a variable of the scope in float32, whatever the dtype of the gradient; `m` has that dtype.
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import same_shape


def _accumulate(total: Tensor, gradient: Tensor) -> None:
    total.add_(gradient)


def _merged(total: Tensor, gradient: Tensor, scale: float) -> Tensor:
    out = torch.add(total, gradient, out=torch.empty_like(total))
    if scale != 1:
        out.mul_(scale)
    total.zero_()
    return out.to(gradient.dtype)


accumulate = declare(
    "accumulate(Tensor(a!) total, Tensor gradient) -> ()", _accumulate, lambda total, gradient: None
)
merged = declare(
    "merged(Tensor(a!) total, Tensor gradient, float scale) -> Tensor",
    _merged,
    lambda total, gradient, scale: torch.empty_like(total, dtype=gradient.dtype),
)
SPECS = (
    OpSpec(accumulate, _accumulate, verify=same_shape("total", "gradient")),
    OpSpec(merged, _merged, verify=same_shape("total", "gradient")),
)

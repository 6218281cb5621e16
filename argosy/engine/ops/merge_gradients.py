"""merged, accumulate, reset: add up the gradients of several steps.

    accumulate([total, …], [g, …])      total += g                       in the steps before the last
    m = merged(total, g, 0.25)          0.25 (total + g)                 in the last
    reset([total, …])                   total = 0

A `total` is a variable of the scope in float32, whatever the dtype of the gradient; `m` has that dtype.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

import torch
from torch import Tensor

from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import same_shape, same_shapes


def _merged(total: Tensor, gradient: Tensor, scale: float) -> Tensor:
    out = torch.add(total, gradient, out=torch.empty_like(total))
    return (out if scale == 1 else out.mul_(scale)).to(gradient.dtype)


def _accumulate(totals: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    torch._foreach_add_(list(totals), list(gradients))


def _reset(totals: Sequence[Tensor]) -> None:
    torch._foreach_zero_(list(totals))


merged = declare(
    "merged(Tensor total, Tensor gradient, float scale) -> Tensor",
    _merged,
    lambda total, gradient, scale: torch.empty_like(total, dtype=gradient.dtype),
)
accumulate = declare(
    "accumulate(Tensor(a!)[] totals, Tensor[] gradients) -> ()", _accumulate, lambda totals, gradients: None
)
reset = declare("reset(Tensor(a!)[] totals) -> ()", _reset, lambda totals: None)
SPECS = (
    OpSpec(merged, _merged, verify=same_shape("total", "gradient")),
    OpSpec(accumulate, _accumulate, verify=same_shapes("totals", "gradients")),
    OpSpec(reset, _reset),
)

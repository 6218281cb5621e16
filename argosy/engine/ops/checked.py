"""checked: copy a tensor if a condition on the data of the step holds; else raise.

For checks that eager code writes as `if torch.any(…): raise`, which a program cannot decide while it is built.
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
from torch import Tensor

from argosy.engine.ops.autograd import register_autograd
from argosy.engine.ops.op_spec import OpSpec, declare


def _kernel(x: Tensor, holds: Tensor, message: str) -> Tensor:
    if not bool(holds):
        raise ValueError(message)  # the executor adds the node and its source line
    return x.clone()


def _fake(x: Tensor, holds: Tensor, message: str) -> Tensor:
    return torch.empty_like(x)


checked = declare("checked(Tensor x, Tensor holds, str message) -> Tensor", _kernel, _fake)


def _gradient(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
    return dy, None, None


register_autograd(checked, lambda ctx, inputs, output: None, _gradient)
SPEC = OpSpec(checked, _kernel)

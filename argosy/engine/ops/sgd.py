"""sgd: p -= lr · (g + decay · p), in one pass over memory."""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.ops.in_one_order import in_one_order
from argosy.engine.ops.spec import OpSpec, declare


def _kernel(param: Tensor, grad: Tensor, rate: Tensor, factor: float, weight_decay: float) -> None:
    lr = rate.item() * factor

    def update(param: Tensor, grad: Tensor) -> None:
        torch._fused_sgd_(
            [param],
            [grad],
            [],
            weight_decay=weight_decay,
            momentum=0.0,
            lr=lr,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )

    in_one_order(update, param, grad)


sgd = declare(
    "sgd(Tensor(a!) param, Tensor grad, Tensor rate, float factor, float weight_decay) -> ()",
    _kernel,
    lambda *args: None,
)
SPEC = OpSpec(sgd, _kernel, "sgd")

"""adagrad: moment += g², p -= lr · g / (sqrt(moment) + eps), in one pass over memory."""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.ops.match_layout import match_layout
from argosy.engine.ops.op_spec import OpSpec, declare

_STEP = torch.ones(1)  # torch's kernel lets the rate fall with the step; with lr_decay=0 any step will do


def _kernel(param: Tensor, grad: Tensor, moment: Tensor, rate: Tensor, factor: float, epsilon: float) -> None:
    lr = rate.item() * factor

    def update(param: Tensor, grad: Tensor, moment: Tensor) -> None:
        torch._fused_adagrad_(
            [param],
            [grad],
            [moment],
            [_STEP],
            lr=lr,
            lr_decay=0.0,
            weight_decay=0.0,
            eps=epsilon,
            maximize=False,
        )

    match_layout(update, param, grad, moment)


adagrad = declare(
    "adagrad(Tensor(a!) param, Tensor grad, Tensor(b!) moment, Tensor rate, float factor, "
    "float epsilon) -> ()",
    _kernel,
    lambda *args: None,
)
SPEC = OpSpec(adagrad, _kernel)

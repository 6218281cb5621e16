"""momentum: v = mu · v + (g + decay · p), p -= lr · v, in one pass over memory.

With Nesterov's p -= lr · (g + decay · p + mu · v). v starts at zero.
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.ops.in_one_order import in_one_order
from argosy.engine.ops.spec import OpSpec, declare


def _kernel(  # the list of the schema
    param: Tensor,
    grad: Tensor,
    velocity: Tensor,
    rate: Tensor,
    factor: float,
    mu: float,
    nesterov: bool,
    weight_decay: float,
) -> None:
    lr = rate.item() * factor

    def update(param: Tensor, grad: Tensor, velocity: Tensor) -> None:
        torch._fused_sgd_(
            [param],
            [grad],
            [velocity],
            weight_decay=weight_decay,
            momentum=mu,
            lr=lr,
            dampening=0.0,
            nesterov=nesterov,
            maximize=False,
            is_first_step=False,
        )

    in_one_order(update, param, grad, velocity)


momentum = declare(
    "momentum(Tensor(a!) param, Tensor grad, Tensor(b!) velocity, Tensor rate, float factor, float mu, "
    "bool nesterov, float weight_decay) -> ()",
    _kernel,
    lambda *args: None,
)
SPEC = OpSpec(momentum, _kernel, "momentum")

"""sgd: p -= lr · (g + decay · p), in one pass over memory."""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.ops.match_layout import match_layout
from argosy.engine.ops.op_spec import OpSpec, declare

_NARROW = (torch.float16, torch.bfloat16)
Tensors = list[Tensor] | tuple[Tensor, ...]


def sgd_lists(
    params: Tensors,
    grads: Tensors,
    velocities: Tensors = (),
    *,
    lr: float,
    weight_decay: float,
    mu: float = 0.0,
    nesterov: bool = False,
) -> None:
    """torch's kernel for lists of tensors, those of a parameter in the same layout; mu = 0 leaves velocities."""
    if params[0].dtype in _NARROW:  # torch 2.13 accepts them on the CPU, and computes wrong results
        wide = [[t.float() for t in tensors] for tensors in (params, grads, velocities)]
        sgd_lists(*wide, lr=lr, weight_decay=weight_decay, mu=mu, nesterov=nesterov)
        for narrow, exact in zip((*params, *velocities), (*wide[0], *wide[2]), strict=True):
            narrow.copy_(exact)
        return
    torch._fused_sgd_(
        params,
        grads,
        velocities if mu else [],
        weight_decay=weight_decay,
        momentum=mu,
        lr=lr,
        dampening=0.0,
        nesterov=nesterov,
        maximize=False,
        is_first_step=False,
    )


def _kernel(param: Tensor, grad: Tensor, rate: Tensor, factor: float, weight_decay: float) -> None:
    lr = rate.item() * factor

    def update(*tensors: Tensor) -> None:
        sgd_lists(*([t] for t in tensors), lr=lr, weight_decay=weight_decay)

    match_layout(update, param, grad)


sgd = declare(
    "sgd(Tensor(a!) param, Tensor grad, Tensor rate, float factor, float weight_decay) -> ()",
    _kernel,
    lambda *args: None,
)
SPEC = OpSpec(sgd, _kernel)

"""sgd: p -= lr · (g + decay · p), in one pass over memory."""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.kernels.updates import UpdateKernel
from argosy.engine.optimizers.spec import OptimizerSpec

_NARROW = (torch.float16, torch.bfloat16)
Tensors = list[Tensor]


def update(params: Tensors, grads: Tensors, lr: float, weight_decay: float = 0.0) -> None:
    update_with_momentum(params, grads, [], lr, 0.0, False, weight_decay)


def update_with_momentum(
    params: Tensors,
    grads: Tensors,
    velocities: Tensors,
    lr: float,
    mu: float,
    nesterov: bool,
    weight_decay: float = 0.0,
) -> None:
    """torch's kernel; mu = 0 leaves velocities."""
    if params[0].dtype in _NARROW:  # torch 2.13 accepts them on the CPU, and computes wrong results
        wide, wide_grads, wide_velocities = ([t.float() for t in ts] for ts in (params, grads, velocities))
        update_with_momentum(wide, wide_grads, wide_velocities, lr, mu, nesterov, weight_decay)
        for narrow, exact in zip((*params, *velocities), (*wide, *wide_velocities), strict=True):
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


def update_rows(p: Tensor, g: Tensor, lr: float) -> None:
    p.sub_(g, alpha=lr)


SPEC = OptimizerSpec(
    "sgd",
    update,
    takes_lists=True,
    update_rows=update_rows,
    folds_l2=True,
    is_fused=True,
    native=UpdateKernel("argosy_fused_sgd", "param grad"),
)

"""momentum: v = mu · v + (g + decay · p), p -= lr · v, in one pass over memory.

With Nesterov's p -= lr · (g + decay · p + mu · v). v starts at zero, and stays there if mu is 0.
"""

# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from argosy.engine.kernels.updates import Row, UpdateKernel
from argosy.engine.optimizers.sgd import update_with_momentum
from argosy.engine.optimizers.spec import OptimizerSetting, OptimizerSpec, Slot

_KERNEL = UpdateKernel("argosy_fused_momentum", "param grad velocity")


def native(rows: list[Row], mu: float, nesterov: bool) -> list[Row]:
    """mu = 0 is left to torch's kernel, which leaves velocities."""
    return _KERNEL(rows, mu, nesterov) if mu else rows


def update_rows(p: Tensor, g: Tensor, velocity: Tensor, lr: float, mu: float, nesterov: bool) -> None:
    velocity.mul_(mu).add_(g)
    p.sub_(g.add(velocity, alpha=mu) if nesterov else velocity, alpha=lr)


SPEC = OptimizerSpec(
    "momentum",
    update_with_momentum,
    settings=(
        OptimizerSetting("momentum", 0.9, least=0, op_name="mu", row_name="mu"),
        OptimizerSetting("use_nesterov", False, op_name="nesterov"),
    ),
    slots=(Slot("velocity", "Velocity"),),
    takes_lists=True,
    update_rows=update_rows,
    folds_l2=True,
    is_fused=True,
    native=native,
)

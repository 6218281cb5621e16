"""update_running_stats: update the running mean and variance of a batch norm with those of a batch.

running = (1 - momentum) * running + momentum * batch
"""

# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import same_channels


def _kernel(
    mean: Tensor,
    var: Tensor,
    batch_mean: Tensor,
    batch_invstd: Tensor,
    momentum: float,
    eps: float,
    count: int,
) -> None:
    """`count` is the number of elements per channel for torch's unbiased variance, 0 for Paddle's biased one."""
    batch_var = batch_invstd.pow(-2).sub_(eps)
    if count > 1:
        batch_var.mul_(count / (count - 1))
    mean.lerp_(batch_mean, momentum)
    var.lerp_(batch_var, momentum)


def _fake(*args: object) -> None:
    return None


update_running_stats = declare(
    "update_running_stats(Tensor(a!) mean, Tensor(b!) var, Tensor batch_mean, Tensor batch_invstd, "
    "float momentum, float eps, SymInt count) -> ()",
    _kernel,
    _fake,
)
SPEC = OpSpec(update_running_stats, _kernel, verify=same_channels)

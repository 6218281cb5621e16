"""Ops of batch norm: statistics over all ranks, running statistics, recomputed results.

sync_batch_norm normalises with the mean and variance of the batches of all ranks:

    rank 0   n0, mean0, M2_0 ─┐                       n    = n0 + n1                 M2: sum of squared
    rank 1   n1, mean1, M2_1 ─┴─ all_gather ─▶ Chan:  mean = Σ ni·meani / n          distances to the mean
                                                      M2   = Σ M2_i + Σ ni·(meani - mean)²

Backward needs two more sums over the ranks, Σ dy and Σ dy·x̂; the gradients of weight and bias stay partial sums of
this rank, like those of every other parameter. Per-channel numbers are sent in float64. Chan's formula avoids the
cancellation of subtracting squares of large means.

    update_running_stats      running = (1 - momentum) * running + momentum * batch
    batch_norm_recompute      y = x · scale + shift, from the saved statistics: scale = weight · invstd,
                              shift = bias - mean · scale; as ATen computes it

Recomputing passes over memory once where the norm itself does twice.
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
from torch import Tensor

from argosy.engine import collective
from argosy.engine.ops.memory_format import empty_as, memory_format_of
from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import same_channels

Triple = tuple[Tensor, Tensor, Tensor]


def _sync(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, group: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """y, mean, 1 / sqrt(variance + eps), and the number of elements per channel over all ranks (int64)."""
    count, mean, var = _combined(_statistics(x), group)
    dtype = _dtype(x, weight)
    mean, invstd = mean.to(dtype), var.add_(eps).rsqrt_().to(dtype)
    # With variance 1 the inference kernel uses the returned invstd: batch_norm_recompute gives the same bits.
    scale = invstd if weight is None else weight * invstd
    y = torch.native_batch_norm(x, scale, bias, mean, torch.ones_like(mean), False, 0.0, 0.0)[0]
    return y, mean, invstd, count.long()


def _statistics(x: Tensor) -> Tensor:
    """This rank's [count, mean of each channel, M2 of each channel], float64."""
    channels = x.shape[1]
    count = x.numel() // channels
    if count == 0:  # a rank without samples takes part with weight 0
        return x.new_zeros(1 + 2 * channels, dtype=torch.float64)
    mean, var = torch.batch_norm_update_stats(x, None, None, 0.0)
    return torch.cat([mean.new_full((1,), count, dtype=torch.float64), mean.double(), var.double() * count])


def _combined(local: Tensor, group: str) -> Triple:
    """Count, mean and (biased) variance over all ranks."""
    gathered = torch.stack(collective.world().group(group).all_gather(local, what="sync_batch_norm"))
    channels = local.numel() // 2
    counts, means, squares = gathered.split([1, channels, channels], 1)
    count = counts.sum()
    mean = (counts * means).sum(0) / count
    var = (squares + counts * (means - mean).square_()).sum(0) / count
    return count, mean, var


def _sync_fake(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, group: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mean = x.new_empty(x.shape[1], dtype=_dtype(x, weight))
    return empty_as(x), mean, torch.empty_like(mean), x.new_empty((), dtype=torch.int64)


def _sync_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    count: Tensor,
    output_mask: list[bool],
    group: str,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """dx, and this rank's partial sums dweight and dbias; None where `output_mask` is False."""
    dweight, dbias = _sums(dy, x, mean, invstd)
    dx = None
    if output_mask[0]:
        both = torch.cat([dbias, dweight]).double()
        both = collective.world().group(group).all_reduce(both, what="sync_batch_norm_backward")
        dx = _input_gradient(dy, x, weight, mean, invstd, (both / count).to(mean.dtype))
    return dx, dweight if output_mask[1] else None, dbias if output_mask[2] else None


def _sums(dy: Tensor, x: Tensor, mean: Tensor, invstd: Tensor) -> tuple[Tensor, Tensor]:
    """Σ dy·x̂ and Σ dy of this rank per channel: the gradients of weight and bias."""
    if x.numel() == 0:
        return torch.zeros_like(mean), torch.zeros_like(mean)
    ones = torch.ones_like(mean)  # the kernel takes the statistics' dtype from the weight
    _, dweight, dbias = torch.ops.aten.native_batch_norm_backward(
        dy, x, ones, None, None, mean, invstd, True, 0.0, [False, True, True]
    )
    return dweight, dbias


def _input_gradient(
    dy: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, invstd: Tensor, averages: Tensor
) -> Tensor:
    """weight · invstd · (dy - average(dy) - x̂ · average(dy·x̂)), in two passes over memory."""
    scale = invstd if weight is None else invstd * weight
    average_dy, average_dy_xhat = averages.chunk(2)
    # Reuse the inference kernel, (x - mean) / sqrt(var) · weight + bias, with var = 1 and our own weight and bias.
    factor, ones = -scale * invstd * average_dy_xhat, torch.ones_like(mean)
    dx = torch.native_batch_norm(x, factor, -scale * average_dy, mean, ones, False, 0.0, 0.0)[0]
    return dx.addcmul_(dy, scale.view(1, -1, *[1] * (x.ndim - 2)).to(dx.dtype))


def _sync_backward_fake(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    count: Tensor,
    output_mask: list[bool],
    group: str,
) -> tuple[Tensor | None, ...]:
    gradients = empty_as(x), torch.empty_like(mean), torch.empty_like(mean)
    return tuple(g if wanted else None for g, wanted in zip(gradients, output_mask, strict=True))


def _dtype(x: Tensor, weight: Tensor | None) -> torch.dtype:
    """The dtype of the statistics: the weight's, which may be float32 where x is bfloat16."""
    return x.dtype if weight is None else weight.dtype


def _update_running_stats(
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


def _recompute(x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor) -> Tensor:
    scale = invstd if weight is None else invstd * weight
    shift = -mean * scale if bias is None else torch.addcmul(bias, mean, scale, value=-1)
    shape = (-1, *[1] * (x.ndim - 2))
    x = x.contiguous(memory_format=memory_format_of(x))
    result = torch.addcmul(shift.view(shape), x, scale.view(shape))
    return result.to(x.dtype)  # statistics of 16-bit x are float32


def _recompute_fake(x: Tensor, *rest: Any) -> Tensor:
    return empty_as(x)


sync_batch_norm = declare(
    "sync_batch_norm(Tensor x, Tensor? weight, Tensor? bias, float eps, str group) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    _sync,
    _sync_fake,
)
sync_batch_norm_backward = declare(
    "sync_batch_norm_backward(Tensor dy, Tensor x, Tensor? weight, Tensor mean, Tensor invstd, Tensor count, "
    "bool[3] output_mask, str group) -> (Tensor, Tensor, Tensor)",
    _sync_backward,
    _sync_backward_fake,
)
update_running_stats = declare(
    "update_running_stats(Tensor(a!) mean, Tensor(b!) var, Tensor batch_mean, Tensor batch_invstd, "
    "float momentum, float eps, SymInt count) -> ()",
    _update_running_stats,
    lambda *args: None,
)
batch_norm_recompute = declare(
    "batch_norm_recompute(Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor invstd) -> Tensor",
    _recompute,
    _recompute_fake,
)
SPECS = (
    OpSpec(sync_batch_norm, _sync, is_collective=True),
    OpSpec(sync_batch_norm_backward, _sync_backward, is_collective=True),
    OpSpec(update_running_stats, _update_running_stats, verify=same_channels),
    OpSpec(batch_norm_recompute, _recompute),
)

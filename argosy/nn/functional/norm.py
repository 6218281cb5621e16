"""Normalisation: over the batch, the layer, instances, groups of channels, neighbouring channels."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError, UnsupportedError
from argosy.engine.ir import lowering
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.nn.functional.layout import channels_back, channels_first, is_channels_last
from argosy.tensor.arguments import sizes


def _last(kind: str, x: Variable, data_format: str) -> bool:
    """True for channels last. "NCHW", the default, means channels first whatever the number of axes."""
    if data_format in ("NC", "NCHW"):
        return False
    return is_channels_last(kind, data_format, x.ndim - 2)


def batch_norm(
    x: Variable,
    running_mean: Variable,
    running_var: Variable,
    weight: Variable | None,
    bias: Variable | None,
    training: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-05,
    data_format: str = "NCHW",
    use_global_stats: bool | None = None,
    name: str | None = None,
) -> Any:
    """x with mean 0 and variance 1 in each channel, times weight, plus bias.

    Training uses the batch's statistics and moves the running ones: running = momentum * running +
    (1 - momentum) * batch, the variance being the biased one, as in Paddle. `use_global_stats=True` uses the
    running ones in training too, and does not update them.
    """
    last = _last("batch_norm", x, data_format)
    of_batch = training and not use_global_stats

    def normalised(x: torch.Tensor, *rest: torch.Tensor | None) -> torch.Tensor:
        mean, var, scale, shift = rest
        x = channels_first(x, last)
        out = lowering.batch_norm(x, mean, var, scale, shift, of_batch, 1 - momentum, epsilon, unbiased=False)
        return channels_back(out, last)

    return apply("batch_norm", normalised, x, running_mean, running_var, weight, bias, name=name)


def layer_norm(
    x: Variable,
    normalized_shape: int | Sequence[int],
    weight: Variable | None = None,
    bias: Variable | None = None,
    epsilon: float = 1e-05,
    name: str | None = None,
) -> Any:
    """x with mean 0 and variance 1 over its last axes, times weight, plus bias; these may be flat."""
    wanted = [int(s) for s in sizes("layer_norm: normalized_shape", normalized_shape)]

    def normalised(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        shaped = [v if v is None else v.reshape(wanted) for v in (weight, bias)]
        return F.layer_norm(x, wanted, shaped[0], shaped[1], epsilon)

    return apply("layer_norm", normalised, x, weight, bias, name=name)


def instance_norm(
    x: Variable,
    running_mean: Variable | None = None,
    running_var: Variable | None = None,
    weight: Variable | None = None,
    bias: Variable | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.9,
    eps: float = 1e-05,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """x with mean 0 and variance 1 in each channel of each sample, times weight, plus bias.

    As in Paddle the running statistics are neither used nor changed.
    """
    if not use_input_stats:
        raise UnsupportedError(
            "instance_norm(use_input_stats=False) is not supported: the input's statistics are used"
        )
    return _group_norm("instance_norm", x, None, eps, weight, bias, data_format, name)


def group_norm(
    x: Variable,
    num_groups: int,
    epsilon: float = 1e-05,
    weight: Variable | None = None,
    bias: Variable | None = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """x with mean 0 and variance 1 in each group of channels of each sample, times weight, plus bias."""
    return _group_norm("group_norm", x, num_groups, epsilon, weight, bias, data_format, name)


def _group_norm(
    kind: str,
    x: Variable,
    groups: int | None,
    eps: float,
    weight: Variable | None,
    bias: Variable | None,
    data_format: str,
    name: str | None,
) -> Any:
    last = _last(kind, x, data_format)
    channels = x.shape[-1 if last else 1]
    count = channels if groups is None else groups
    if count < 1 or channels % count:
        raise ConfigError(f"{kind}: {channels} channels do not divide into {count} groups; use a divisor")

    def normalised(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        return channels_back(F.group_norm(channels_first(x, last), count, weight, bias, eps), last)

    return apply(kind, normalised, x, weight, bias, name=name)


def local_response_norm(
    x: Variable,
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """x / (k + alpha * m) ** beta with m the mean of the squares of `size` neighbouring channels."""
    last = _last("local_response_norm", x, data_format)

    def normalised(x: torch.Tensor) -> torch.Tensor:
        x = channels_first(x, last)
        around = [0, 0] * (x.ndim - 2) + [size // 2, (size - 1) // 2]
        mean = F.pad(x * x, around).unfold(1, size, 1).mean(-1)
        return channels_back(x / (k + alpha * mean) ** beta, last)

    return apply("local_response_norm", normalised, x, name=name)

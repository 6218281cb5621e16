"""Normalisation with its parameters and statistics."""

# SPDX-License-Identifier: Apache-2.0
import math
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir import lowering
from argosy.engine.ir.variable import Variable
from argosy.engine.log import logger
from argosy.engine.ops.batch_norm import update_running_stats
from argosy.framework.initializer import Constant
from argosy.framework.layer import LayerBuilder
from argosy.nn.functional import norm as functional


def batch_norm(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
) -> Any:
    """Normalise each channel over the batch: (x - mean) / sqrt(variance + epsilon) · scale + bias.

    Parameters `name`.w_0 (scale) and .b_0 (bias), statistics .w_1 (mean) and .w_2 (variance), which move to
    momentum · old + (1 - momentum) · batch with the biased variance. Results: .tmp_0 batch mean, .tmp_1 batch
    1 / sqrt(variance + epsilon), .tmp_2 output, .tmp_3 activated. With is_test or use_global_stats the moving
    statistics are used instead of the batch's. `in_place` has no effect.
    """
    if not isinstance(momentum, int | float) or not 0 <= momentum <= 1:
        raise ConfigError(
            f"batch_norm: momentum={momentum!r}; give a number from 0 to 1 (a Variable is not supported)"
        )
    layer = LayerBuilder("batch_norm", name)
    last = _channels_last("batch_norm", data_layout)
    scale, bias = _scale_and_bias(layer, input, param_attr, bias_attr, last)
    channels, dtype = [input.shape[-1 if last else 1]], _parameter_dtype(input)
    is_averaged = do_model_average_for_mean_and_var
    mean = layer.statistic(moving_mean_name, channels, dtype, 0.0, is_averaged)
    variance = layer.statistic(moving_variance_name, channels, dtype, 1.0, is_averaged)
    states = (mean, variance, scale, bias, momentum, epsilon, last)
    if is_test or use_global_stats:
        layer.skip_names(2)
        out = layer.run(_with_moving_statistics, input, *states)
    else:
        out = layer.run(_with_batch_statistics, input, *states)[2]
    return layer.activate(out, act)


def _with_batch_statistics(
    x: Tensor, mean: Tensor, var: Tensor, scale: Any, bias: Any, momentum: float, epsilon: float, last: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch normalization that also returns the statistics: (batch mean, batch 1 / std, output)."""
    x = x.movedim(-1, 1) if last else x
    out, batch_mean, invstd = lowering.native_batch_norm(
        x, scale, bias, None, None, True, 1 - momentum, epsilon
    )
    with torch.no_grad():
        update_running_stats(mean, var, batch_mean, invstd, 1 - momentum, epsilon, 0)
    return batch_mean, invstd, out.movedim(1, -1) if last else out


def _with_moving_statistics(
    x: Tensor, mean: Tensor, var: Tensor, scale: Any, bias: Any, momentum: float, epsilon: float, last: bool
) -> Tensor:
    x = x.movedim(-1, 1) if last else x
    out = lowering.batch_norm(x, mean, var, scale, bias, False, 1 - momentum, epsilon)
    return out.movedim(1, -1) if last else out


def layer_norm(
    input: Variable,
    scale: bool = True,
    shift: bool = True,
    begin_norm_axis: int = 1,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Any:
    """Normalise each sample over the dimensions from begin_norm_axis on.

    Scale and bias are flat, of as many elements as are normalised together. The output is `name`.tmp_2, as
    Paddle has the mean and the variance before it.
    """
    if not 0 < begin_norm_axis < input.ndim:
        raise ConfigError(
            f"layer_norm: begin_norm_axis={begin_norm_axis} of a variable with {input.ndim} dimensions; "
            f"use 1 to {input.ndim - 1}"
        )
    for wanted, attr, what in (
        (scale, param_attr, "scale=False, param_attr"),
        (shift, bias_attr, "shift=False, bias_attr"),
    ):
        if not wanted and attr:
            logger.warning("layer_norm: %s=%r has no effect: the parameter does not exist", what, attr)
    layer = LayerBuilder("layer_norm", name)
    shape, dtype = input.shape[begin_norm_axis:], _parameter_dtype(input)
    size = [math.prod(shape)]
    weight = layer.parameter(param_attr, size, dtype, default_initializer=Constant(1.0)) if scale else None
    bias = layer.parameter(bias_attr, size, dtype, is_bias=True) if shift else None
    layer.skip_names(2)
    return layer.activate(functional.layer_norm(input, shape, weight, bias, epsilon, layer.name), act)


def group_norm(
    input: Variable,
    groups: int,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
) -> Any:
    """Normalise each sample over each group of channels; the output is `name`.tmp_2, as in layer_norm."""
    layer = LayerBuilder("group_norm", name)
    scale, bias = _scale_and_bias(
        layer, input, param_attr, bias_attr, _channels_last("group_norm", data_layout)
    )
    layer.skip_names(2)
    out = functional.group_norm(input, groups, epsilon, scale, bias, data_layout, layer.name)
    return layer.activate(out, act)


def instance_norm(
    input: Variable,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> Any:
    """Normalise each channel of each sample; the output is `name`.tmp_2, as in layer_norm."""
    if (param_attr is False) != (bias_attr is False):
        raise ConfigError(
            "instance_norm: one of param_attr and bias_attr is False; set both to False or none"
        )
    layer = LayerBuilder("instance_norm", name)
    scale, bias = _scale_and_bias(layer, input, param_attr, bias_attr, False)
    layer.skip_names(2)
    return functional.instance_norm(input, None, None, scale, bias, eps=epsilon, name=layer.name)


def _scale_and_bias(
    layer: LayerBuilder, x: Variable, param_attr: Any, bias_attr: Any, last: bool
) -> tuple[Any, Any]:
    channels, dtype = [x.shape[-1 if last else 1]], _parameter_dtype(x)
    scale = layer.parameter(param_attr, channels, dtype, default_initializer=Constant(1.0))
    return scale, layer.parameter(bias_attr, channels, dtype, is_bias=True)


def _channels_last(kind: str, layout: str) -> bool:
    if layout not in ("NCHW", "NHWC", "NCDHW", "NDHWC", "NCL", "NLC", "NC"):
        raise ConfigError(f"{kind}: data_layout={layout!r} is not known; use 'NCHW' or 'NHWC'")
    return layout.endswith("C") and layout != "NC"


def _parameter_dtype(x: Variable) -> torch.dtype:
    """Scale, bias and statistics of 16-bit inputs are 32-bit."""
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype

"""Convolutions: creates weights and bias as Paddle 1.x does, and calls nn.functional.

The convolution kernel adds the bias, so Paddle's variable `name`.tmp_0 (the result before the bias)
does not exist; `name`.tmp_1 is the result with bias, and the activation comes next, as in Paddle.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable
from typing import Any

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.initializer import Normal
from argosy.framework.layer import LayerBuilder
from argosy.framework.variant import variant
from argosy.nn.functional import conv as functional
from argosy.nn.functional.layout import is_channels_last, per_axis, to_padding


def _conv(
    spatial: int,
    input: Variable,
    num_filters: int,
    filter_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Any:
    kind = f"conv{spatial}d"
    last = is_channels_last(kind, data_format, spatial)
    channels = input.shape[-1 if last else 1]
    depthwise = spatial == 2 and channels == groups and num_filters % channels == 0 and not use_cudnn
    layer = LayerBuilder("depthwise_conv2d" if depthwise else kind, name)
    kernel = per_axis(f"{kind}: filter_size", filter_size, spatial)
    weight, bias = _filters(layer, input, channels, num_filters, kernel, groups or 1, param_attr, bias_attr)
    plan = (stride, padding, dilation, groups or 1, data_format)
    function = functional.conv2d if spatial == 2 else functional.conv3d
    return _run(layer, function, input, weight, bias, plan, act)


@variant(_conv, 2)
def conv2d() -> Any:
    """Convolution over two axes; depthwise with groups = channels.

    Weights `name`.w_0 of [num_filters, channels / groups, height, width], by default Gaussian with
    sqrt(2 / (height · width · channels)); bias `name`.b_0. As in Paddle a depthwise convolution with
    use_cudnn=False is called depthwise_conv2d_0.
    """


@variant(_conv, 3, data_format="NCDHW")
def conv3d() -> Any:
    """Convolution over three axes; weights, bias and names as in conv2d."""


def _conv_transpose(
    spatial: int,
    input: Variable,
    num_filters: int,
    output_size: Any = None,
    filter_size: Any = None,
    padding: Any = 0,
    stride: Any = 1,
    dilation: Any = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Any:
    kind = f"conv{spatial}d_transpose"
    last = is_channels_last(kind, data_format, spatial)
    channels = input.shape[-1 if last else 1]
    groups = groups or 1
    _check_groups(kind, channels, num_filters, groups)
    if filter_size is None:
        kernel = _kernel_for(kind, input, output_size, padding, stride, dilation, last)
    else:
        kernel = per_axis(f"{kind}: filter_size", filter_size, spatial)
    layer = LayerBuilder(kind, name)
    weight = layer.parameter(param_attr, [channels, num_filters // groups, *kernel], input.dtype)
    bias = layer.parameter(bias_attr, [num_filters], input.dtype, is_bias=True)
    order = (dilation, groups) if spatial == 2 else (groups, dilation)  # Paddle's functions differ
    plan = (stride, padding, 0, *order, output_size, data_format)
    function = functional.conv2d_transpose if spatial == 2 else functional.conv3d_transpose
    return _run(layer, function, input, weight, bias, plan, act)


@variant(_conv_transpose, 2)
def conv2d_transpose() -> Any:
    """Transposed convolution; weights `name`.w_0 [channels, num_filters / groups, height, width].

    Without filter_size, it is computed from output_size, which needs an input with known sizes.
    """


@variant(_conv_transpose, 3, data_format="NCDHW")
def conv3d_transpose() -> Any:
    """Transposed convolution over three axes; see conv2d_transpose."""


def _filters(
    layer: LayerBuilder,
    x: Variable,
    channels: int,
    filters: int,
    kernel: list[int],
    groups: int,
    param_attr: Any,
    bias_attr: Any,
) -> tuple[Any, Any]:
    _check_groups(layer.kind, channels, filters, groups)
    spread = Normal(0.0, math.sqrt(2.0 / (math.prod(kernel) * channels)))
    weight = layer.parameter(
        param_attr, [filters, channels // groups, *kernel], x.dtype, default_initializer=spread
    )
    return weight, layer.parameter(bias_attr, [filters], x.dtype, is_bias=True)


def _check_groups(kind: str, channels: int, filters: int, groups: int) -> None:
    if groups < 1 or channels % groups or filters % groups:
        raise ConfigError(
            f"{kind}: {channels} channels and {filters} filters are not divisible into {groups} groups; "
            "use a number that divides both"
        )


def _run(
    layer: LayerBuilder,
    function: Callable[..., Any],
    x: Variable,
    weight: Any,
    bias: Any,
    plan: tuple[Any, ...],
    act: str | None,
) -> Any:
    if bias is not None:
        layer.skip_names(1)
    return layer.activate(function(x, weight, bias, *plan, name=layer.name), act)


def _kernel_for(
    kind: str, x: Variable, output_size: Any, padding: Any, stride: Any, dilation: Any, last: bool
) -> list[int]:
    """The filter size for which the output has output_size."""
    if output_size is None:
        raise ConfigError(f"{kind}: neither output_size nor filter_size is given; give one of them")
    sizes = x.shape[1:-1] if last else x.shape[2:]
    spatial = x.ndim - 2
    pairs = to_padding(kind, padding, spatial, last).pairs
    if min(sizes) < 0 or pairs is None:
        raise ConfigError(
            f"{kind}: an input of shape {list(x.shape)} with padding={padding!r} does not determine "
            "the filter_size; give it"
        )
    wanted = per_axis(f"{kind}: output_size", output_size, spatial)
    steps, gaps = per_axis("stride", stride, spatial), per_axis("dilation", dilation, spatial)
    return [
        (want - (size - 1) * step + sum(pair) - 1) // gap + 1
        for want, size, step, gap, pair in zip(wanted, sizes, steps, gaps, pairs, strict=True)
    ]

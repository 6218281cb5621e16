"""fluid.nets: small groups of layers."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.fluid.layers import batch_norm, conv2d, dropout, fc, pool2d, sequence_conv, sequence_pool
from argosy.framework.layer import apply
from argosy.framework.missing import missing

__all__ = [
    "glu",
    "img_conv_group",
    "scaled_dot_product_attention",
    "sequence_conv_pool",
    "simple_img_conv_pool",
]


def simple_img_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: Any,
    pool_size: Any,
    pool_stride: Any,
    pool_padding: Any = 0,
    pool_type: str = "max",
    global_pooling: bool = False,
    conv_stride: Any = 1,
    conv_padding: Any = 0,
    conv_dilation: Any = 1,
    conv_groups: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    use_cudnn: bool = True,
) -> Any:
    """conv2d, then pool2d."""
    out = conv2d(
        input,
        num_filters,
        filter_size,
        conv_stride,
        conv_padding,
        conv_dilation,
        conv_groups,
        param_attr,
        bias_attr,
        use_cudnn,
        act,
    )
    return pool2d(out, pool_size, pool_type, pool_stride, pool_padding, global_pooling, use_cudnn)


def img_conv_group(
    input: Variable,
    conv_num_filter: Sequence[int],
    pool_size: Any,
    conv_padding: Any = 1,
    conv_filter_size: Any = 3,
    conv_act: str | None = None,
    param_attr: Any = None,
    conv_with_batchnorm: Any = False,
    conv_batchnorm_drop_rate: Any = 0.0,
    pool_stride: Any = 1,
    pool_type: str = "max",
    use_cudnn: bool = True,
) -> Any:
    """Several conv2d, each optionally followed by batch_norm and dropout, then pool2d, as in VGG.

    An argument of the convolutions is one value for all, or a list with one for each.
    """
    count = len(conv_num_filter)
    paddings, sizes, attrs, norms, rates = (
        _each(value, count)
        for value in (
            conv_padding,
            conv_filter_size,
            param_attr,
            conv_with_batchnorm,
            conv_batchnorm_drop_rate,
        )
    )
    out = input
    for i, filters in enumerate(conv_num_filter):
        act = None if norms[i] else conv_act
        out = conv2d(
            out, filters, sizes[i], padding=paddings[i], param_attr=attrs[i], act=act, use_cudnn=use_cudnn
        )
        if norms[i]:
            out = batch_norm(out, conv_act)
            out = dropout(out, rates[i]) if rates[i] else out
    return pool2d(out, pool_size, pool_type, pool_stride, use_cudnn=use_cudnn)


def sequence_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: int,
    param_attr: Any = None,
    act: str = "sigmoid",
    pool_type: str = "max",
    bias_attr: Any = None,
) -> Any:
    """sequence_conv, then sequence_pool: one row for each sequence, as in text classifiers."""
    out = sequence_conv(input, num_filters, filter_size, param_attr=param_attr, bias_attr=bias_attr, act=act)
    return sequence_pool(out, pool_type)


def _each(value: Any, count: int) -> list[Any]:
    if not isinstance(value, list | tuple):
        return [value] * count
    if len(value) != count:
        raise ConfigError(
            f"img_conv_group: {list(value)} for {count} convolutions; give one value, or {count}"
        )
    return list(value)


def glu(input: Variable, dim: int = -1) -> Any:
    """The first half of the input along `dim` times the sigmoid of the second half."""
    return apply("glu", F.glu, input, dim)


def scaled_dot_product_attention(
    queries: Variable, keys: Variable, values: Variable, num_heads: int = 1, dropout_rate: float = 0.0
) -> Any:
    """softmax(q · kᵀ / sqrt(width of a head)) · v of [N, length, width]; with several heads between linear layers."""
    if num_heads < 1 or keys.shape[-1] % num_heads or values.shape[-1] % num_heads:
        raise ConfigError(
            f"scaled_dot_product_attention: widths {keys.shape[-1]} and {values.shape[-1]} do not divide into "
            f"{num_heads} heads; use a divisor"
        )
    inputs = [queries, keys, values]
    if num_heads > 1:
        inputs = [fc(x, x.shape[-1], num_flatten_dims=2) for x in inputs]

    def heads(x: Tensor) -> Tensor:
        parts: Tensor = x.unflatten(-1, (num_heads, -1))
        return parts.transpose(1, 2)

    def weigh(q: Tensor, k: Tensor) -> Tensor:
        scale = float(k.shape[-1] // num_heads) ** -0.5
        return torch.softmax(heads(q) @ heads(k).mT * scale, -1)

    weights = apply("attention_weights", weigh, inputs[0], inputs[1])
    weights = dropout(weights, dropout_rate) if dropout_rate else weights
    return apply("attention", lambda w, v: (w @ heads(v)).transpose(1, 2).flatten(2), weights, inputs[2])


__getattr__ = missing(__name__, globals())

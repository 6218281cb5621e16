"""bilinear_tensor_product, row_conv, spectral_norm."""

# SPDX-License-Identifier: Apache-2.0
import math
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.initializer import Normal
from argosy.framework.layer import LayerBuilder, ParamAttr
from argosy.nn.functional import common
from argosy.nn.spectral import spectral_normalized
from argosy.tensor.arguments import one_axis


def bilinear_tensor_product(
    x: Variable,
    y: Variable,
    size: int,
    act: str | None = None,
    name: str | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
) -> Any:
    """act(x · W[k] · y + b) for k below size; weights `name`.w_0 [size, width of x, width of y], bias [1, size]."""
    layer = LayerBuilder("bilinear_tensor_product", name)
    weight = layer.parameter(param_attr, [size, x.shape[1], y.shape[1]], x.dtype)
    bias = layer.parameter(bias_attr, [1, size], x.dtype, is_bias=True)
    return layer.activate(common.bilinear(x, y, weight, bias, layer.name), act)


def row_conv(
    input: Variable, future_context_size: int, param_attr: Any = None, act: str | None = None
) -> Any:
    """Each step plus the next future_context_size steps, weighted by `name`.w_0 [future_context_size + 1, D].

    The input is [N, steps, D]; after the last step there are zeros.
    """
    if input.ndim != 3:
        raise ConfigError(f"row_conv: {input.name!r} has {input.ndim} dimensions; give [N, steps, D]")
    layer = LayerBuilder("row_conv")
    weight = layer.parameter(param_attr, [future_context_size + 1, input.shape[2]], input.dtype)

    def summed(x: Tensor, w: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(x, [0, 0, 0, future_context_size])
        steps = x.shape[1]
        out = padded.narrow(1, 0, steps) * w[0]
        for ahead in range(1, future_context_size + 1):
            out = out + padded.narrow(1, ahead, steps) * w[ahead]
        return out

    return layer.activate(layer.run(summed, input, weight), act)


def spectral_norm(
    weight: Variable, dim: int = 0, power_iters: int = 1, eps: float = 1e-12, name: str | None = None
) -> Any:
    """weight / sigma, its largest singular value as a matrix of weight.shape[dim] rows (Miyato et al. 2018).

    sigma is estimated by power_iters steps from two random vectors, `name`.w_0 and .w_1, which stay as they are.
    """
    axis = one_axis("spectral_norm", dim, weight.ndim)
    rows = weight.shape[axis]
    layer = LayerBuilder("spectral_norm", name)
    u, v = (
        layer.parameter(
            ParamAttr(trainable=False), [size], weight.dtype, default_initializer=Normal(0.0, 1.0)
        )
        for size in (rows, math.prod(weight.shape) // rows)
    )
    return layer.run(lambda w, u, v: spectral_normalized(w, u, v, axis, power_iters, eps), weight, u, v)

"""Activations, element by element, and softmax."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.framework.variant import unary
from argosy.tensor.arguments import chosen_dtype, one_axis

relu = unary("relu", torch.relu, "max(x, 0).")
relu6 = unary("relu6", F.relu6, "x, at least 0 and at most 6.")
sigmoid = unary("sigmoid", torch.sigmoid, "1 / (1 + exp(-x)).")
log_sigmoid = unary("log_sigmoid", F.logsigmoid, "log(sigmoid(x)), without overflow.")
hardswish = unary("hardswish", F.hardswish, "x * relu6(x + 3) / 6.", "hard_swish")
silu = unary("silu", F.silu, "x * sigmoid(x).")
swish = unary("swish", F.silu, "x * sigmoid(x).")
mish = unary("mish", F.mish, "x * tanh(softplus(x)).")
tanh = unary("tanh", torch.tanh, "The hyperbolic tangent.")
softsign = unary("softsign", F.softsign, "x / (1 + |x|).")
tanhshrink = unary("tanhshrink", F.tanhshrink, "x - tanh(x).", "tanh_shrink")


def elu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Any:
    """x above 0, else alpha * (exp(x) - 1)."""
    return apply("elu", F.elu, x, alpha, name=name)


def selu(
    x: Variable,
    scale: float = 1.0507009873554804934193349852946,
    alpha: float = 1.6732632423543772848170429916717,
    name: str | None = None,
) -> Any:
    """scale * x above 0, else scale * alpha * (exp(x) - 1)."""
    return apply("selu", lambda x: scale * F.elu(x, alpha), x, name=name)


def gelu(x: Variable, approximate: bool = False, name: str | None = None) -> Any:
    """x times the Gaussian distribution function of x; `approximate` uses the form with tanh."""
    return apply("gelu", F.gelu, x, approximate="tanh" if approximate else "none", name=name)


def hardsigmoid(x: Variable, slope: float = 0.1666667, offset: float = 0.5, name: str | None = None) -> Any:
    """slope * x + offset, at least 0 and at most 1."""
    return apply("hard_sigmoid", lambda x: torch.clamp(x * slope + offset, 0.0, 1.0), x, name=name)


def leaky_relu(x: Variable, negative_slope: float = 0.01, name: str | None = None) -> Any:
    """x above 0, else negative_slope * x."""
    return apply("leaky_relu", F.leaky_relu, x, negative_slope, name=name)


def prelu(x: Variable, weight: Variable, name: str | None = None) -> Any:
    """x above 0, else weight * x; the weight has one element, or one for each channel (axis 1)."""
    return apply("prelu", F.prelu, x, weight, name=name)


def hardtanh(x: Variable, min: float = -1.0, max: float = 1.0, name: str | None = None) -> Any:
    """x, at least `min` and at most `max`."""
    return apply("hardtanh", F.hardtanh, x, min, max, name=name)


def hardshrink(x: Variable, threshold: float = 0.5, name: str | None = None) -> Any:
    """x where |x| is above the threshold, else 0."""
    return apply("hard_shrink", F.hardshrink, x, threshold, name=name)


def softshrink(x: Variable, threshold: float = 0.5, name: str | None = None) -> Any:
    """x shrunk towards 0 by the threshold; 0 where |x| is below it."""
    if threshold < 0:
        raise ConfigError(f"softshrink: threshold={threshold} is negative; use 0 or more")
    return apply("softshrink", F.softshrink, x, threshold, name=name)


def thresholded_relu(x: Variable, threshold: float = 1.0, name: str | None = None) -> Any:
    """x above the threshold, else 0."""
    return apply("thresholded_relu", F.threshold, x, threshold, 0.0, name=name)


def softplus(x: Variable, beta: float = 1, threshold: float = 20, name: str | None = None) -> Any:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold."""
    return apply("softplus", F.softplus, x, beta, threshold, name=name)


def softmax(x: Variable, axis: int = -1, dtype: Any = None, name: str | None = None) -> Any:
    """exp(x) / sum(exp(x)) along an axis, computed in `dtype` if one is given."""
    one_axis("softmax", axis, x.ndim)
    return apply("softmax", torch.softmax, x, axis, dtype=dtype and chosen_dtype(dtype), name=name)


def log_softmax(x: Variable, axis: int = -1, dtype: Any = None, name: str | None = None) -> Any:
    """log(softmax(x)), without overflow."""
    one_axis("log_softmax", axis, x.ndim)
    return apply("log_softmax", torch.log_softmax, x, axis, dtype=dtype and chosen_dtype(dtype), name=name)


def maxout(x: Variable, groups: int, axis: int = 1, name: str | None = None) -> Any:
    """The greatest of each `groups` neighbouring channels."""
    dim = one_axis("maxout", axis, x.ndim)
    if groups < 1 or x.shape[dim] % groups:
        raise ConfigError(f"maxout: {x.shape[dim]} channels do not divide into groups of {groups}")
    return apply("maxout", lambda x: x.unflatten(dim, (-1, groups)).amax(dim + 1), x, name=name)

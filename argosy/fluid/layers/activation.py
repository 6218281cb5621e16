"""Activations with 1.x's arguments; relu, exp and similar functions are those of nn.functional and tensor."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
import torch.nn.functional as F

from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.framework.variant import variant
from argosy.nn.functional import activation as functional
from argosy.tensor.arguments import one_axis


def softmax(input: Variable, use_cudnn: bool = False, name: str | None = None, axis: int = -1) -> Any:
    """exp(x) divided by its sum along `axis`."""
    one_axis("softmax", axis, input.ndim)
    return apply("softmax", torch.softmax, input, axis, name=name)


def leaky_relu(x: Variable, alpha: float = 0.02, name: str | None = None) -> Any:
    """x where positive, else alpha · x."""
    return apply("leaky_relu", F.leaky_relu, x, alpha, name=name)


def swish(x: Variable, beta: float = 1.0, name: str | None = None) -> Any:
    """x · sigmoid(beta · x)."""
    return apply("swish", lambda v: F.silu(v) if beta == 1.0 else v * torch.sigmoid(beta * v), x, name=name)


def relu6(x: Variable, threshold: float = 6.0, name: str | None = None) -> Any:
    """x between 0 and threshold."""
    return apply("relu6", lambda v: v.clamp(0.0, threshold), x, name=name)


@variant(functional.hardsigmoid, slope=0.2)
def hard_sigmoid() -> Any:
    """slope · x + offset, between 0 and 1; torch's own slope is 1/6."""


def hard_swish(
    x: Variable, threshold: float = 6.0, scale: float = 6.0, offset: float = 3.0, name: str | None = None
) -> Any:
    """x · min(max(x + offset, 0), threshold) / scale."""
    return apply("hard_swish", lambda v: v * (v + offset).clamp(0.0, threshold) / scale, x, name=name)


def pow(x: Variable, factor: Any = 1.0, name: str | None = None) -> Any:
    """x to the power of factor, a number or a variable of shape [1]."""
    return apply("pow", torch.pow, x, factor, name=name)


def brelu(x: Variable, t_min: float = 0.0, t_max: float = 24.0, name: str | None = None) -> Any:
    """x, at least t_min and at most t_max."""
    return apply("brelu", lambda v: v.clamp(t_min, t_max), x, name=name)


def soft_relu(x: Variable, threshold: float = 40.0, name: str | None = None) -> Any:
    """log(1 + exp(x)), with x limited to -threshold … threshold."""
    return apply("soft_relu", lambda v: torch.log1p(v.clamp(-threshold, threshold).exp()), x, name=name)


def softshrink(x: Variable, alpha: float = 0.5) -> Any:
    """x shrunk towards 0 by alpha; 0 where |x| is below it."""
    return functional.softshrink(x, alpha)


def hard_shrink(x: Variable, threshold: float = 0.5) -> Any:
    """x where |x| is above the threshold, else 0."""
    return functional.hardshrink(x, threshold)


def thresholded_relu(x: Variable, threshold: float = 1.0) -> Any:
    """x above the threshold, else 0."""
    return functional.thresholded_relu(x, threshold)


def mish(x: Variable, threshold: float = 20, name: str | None = None) -> Any:
    """x · tanh(softplus(x)); above the threshold softplus(x) is x."""
    return apply("mish", lambda v: v * torch.tanh(F.softplus(v, 1, threshold)), x, name=name)


@variant(functional.selu, parameters="x scale alpha name")
def selu() -> Any:
    """scale · x above 0, else scale · alpha · (exp(x) - 1)."""


@variant(functional.maxout, parameters="x groups name axis")
def maxout() -> Any:
    """The greatest of each `groups` neighbouring channels."""


def cumsum(x: Variable, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> Any:
    """The sum up to each element along `axis`: without the element itself if exclusive, from the end if reverse."""
    dim = one_axis("cumsum", axis, x.ndim)

    def total(v: torch.Tensor) -> torch.Tensor:
        v = v.flip(dim) if reverse else v
        out = torch.cumsum(v, dim, dtype=v.dtype)
        out = out - v if exclusive else out
        return out.flip(dim) if reverse else out

    return apply("cumsum", total, x)

"""Activations with 1.x's arguments; relu, exp and similar functions are those of nn.functional and tensor."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
import torch.nn.functional as F

from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.framework.variant import variant
from argosy.nn.functional.activation import hardsigmoid
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


@variant(hardsigmoid, slope=0.2)
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

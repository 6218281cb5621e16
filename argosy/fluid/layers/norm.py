"""Scaling by a norm; the layers with parameters are those of static.nn."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply


def l2_normalize(x: Variable, axis: int | None, epsilon: float = 1e-12, name: str | None = None) -> Any:
    """x / sqrt(sum of x² along axis + epsilon); None means the last axis."""
    dim = -1 if axis is None or x.ndim == 1 else axis
    return apply(
        "l2_normalize", lambda v: v * (v.square().sum(dim, keepdim=True) + epsilon).rsqrt(), x, name=name
    )


def clip_by_norm(x: Variable, max_norm: float, name: str | None = None) -> Any:
    """x, scaled down if needed so that sqrt(sum of x²) is at most max_norm."""
    if max_norm <= 0:
        raise ConfigError(f"clip_by_norm: max_norm={max_norm} is not positive; use a number above 0")
    return apply(
        "clip_by_norm", lambda v: v * (max_norm / v.square().sum().sqrt().clamp(min=max_norm)), x, name=name
    )

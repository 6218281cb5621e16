"""Sampling of images at the points of a grid."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.tensor.arguments import sizes


def affine_grid(theta: Variable, out_shape: Any, align_corners: bool = True, name: str | None = None) -> Any:
    """The points [N, H, W, 2] of a grid that the matrices theta, [N, 2, 3], transform; out_shape is [N, C, H, W].

    The batch size is that of theta; the N of out_shape has no effect.
    """
    wanted = sizes("affine_grid: out_shape", out_shape)
    if len(wanted) != 4:
        raise ConfigError(f"affine_grid: out_shape={out_shape} has {len(wanted)} numbers; give [N, C, H, W]")

    def grid(theta: torch.Tensor) -> torch.Tensor:
        height, width = wanted[2:]
        x, y = _positions(width, align_corners, theta), _positions(height, align_corners, theta)
        points = torch.stack(
            [
                x.expand(height, width),
                y.unsqueeze(1).expand(height, width),
                torch.ones(height, width, dtype=theta.dtype),
            ],
            -1,
        )
        return torch.matmul(points.reshape(1, -1, 3), theta.mT).reshape(-1, height, width, 2)

    return apply("affine_grid", grid, theta, name=name)


def _positions(size: Any, align_corners: bool, like: torch.Tensor) -> torch.Tensor:
    edge = 1.0 if align_corners else 1.0 - 1.0 / size
    return torch.linspace(-edge, edge, size, dtype=like.dtype)


def grid_sample(
    x: Variable,
    grid: Variable,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = True,
    name: str | None = None,
) -> Any:
    """x at the points of the grid, [N, H, W, 2] from -1 to 1; padding_mode: "zeros", "border" or "reflection"."""
    if mode not in ("bilinear", "nearest") or padding_mode not in ("zeros", "border", "reflection"):
        raise ConfigError(
            f"grid_sample: mode={mode!r}, padding_mode={padding_mode!r}; use bilinear or nearest, and zeros, border or "
            "reflection"
        )
    return apply("grid_sampler", F.grid_sample, x, grid, mode, padding_mode, align_corners, name=name)

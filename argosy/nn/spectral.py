"""Spectral normalization of a tensor, for the layer and for static.nn."""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor


def spectral_normalized(
    weight: Tensor, u: Tensor, v: Tensor, axis: int, power_iters: int, eps: float
) -> Tensor:
    """weight / (u · matrix · v) after power_iters steps of u and v, which have no gradient."""
    matrix = weight.movedim(axis, 0).flatten(1)
    with torch.no_grad():
        for _ in range(power_iters):
            v = torch.mv(matrix.t(), u)
            v = v / (v.norm() + eps)
            u = torch.mv(matrix, v)
            u = u / (u.norm() + eps)
    return weight / torch.dot(u, torch.mv(matrix, v))

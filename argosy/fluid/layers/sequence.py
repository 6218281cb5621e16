"""Sequences of different lengths: cos_sim and edit_distance of 1.x; the layers sequence_* are those of static.nn."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from torch import Tensor

from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply


def cos_sim(X: Variable, Y: Variable) -> Any:
    """The cosine of the angle between the rows of X [N, D] and Y [N, D] or [1, D]: [N, 1]."""

    def cosine(x: Tensor, y: Tensor) -> Tensor:
        x, y = x.flatten(1), y.flatten(1)
        norms = x.square().sum(1, keepdim=True).sqrt() * y.square().sum(1, keepdim=True).sqrt()
        return (x * y).sum(1, keepdim=True) / norms

    return apply("cos_sim", cosine, X, Y)

"""PairwiseDistance."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch

from argosy.framework.layer import apply
from argosy.nn.layer.layers import Layer


class PairwiseDistance(Layer):
    """The p-norm of x - y + epsilon along axis 1."""

    def __init__(
        self, p: float = 2.0, epsilon: float = 1e-6, keepdim: bool = False, name: str | None = None
    ) -> None:
        super().__init__()
        self.p, self.epsilon, self.keepdim, self._name = float(p), epsilon, keepdim, name

    def forward(self, x: Any, y: Any) -> Any:
        def norm(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            distance: torch.Tensor = torch.linalg.vector_norm(x - y + self.epsilon, self.p, 1, self.keepdim)
            return distance

        return apply("pairwise_distance", norm, x, y, name=self._name)

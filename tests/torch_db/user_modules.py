"""Modules as users write them, for the samples of our own."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Tied(nn.Module):
    """The output layer has the embedding's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 5)
        self.out = nn.Linear(5, 7)
        self.out.weight = self.embedding.weight

    def forward(self, words: Tensor) -> Tensor:
        hidden: Tensor = self.out(torch.tanh(self.embedding(words)))
        return hidden


class ScaledInTraining(nn.Module):
    """Computes something else in training."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        if self.training:
            y = y * 2
        return y


class DropsInTraining(nn.Module):
    """Asks for the mode itself and calls functions that take it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 50)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        if self.training:
            y = F.dropout(y, 0.3)
        return y


class ReassignedBuffer(nn.Module):
    """Keeps a running mean by giving the buffer's name to a new tensor."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * y.detach().mean(0)
        return y - self.mean


class ChangedBuffer(nn.Module):
    """Keeps a running mean and a count in place."""

    mean: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.count += 1
                self.mean.lerp_(x.mean(0), 0.1)
        return x - self.mean


class PoolAndUnpool(nn.Module):
    """Gives the indices of a pool to its inverse."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(2, return_indices=True)
        self.unpool = nn.MaxUnpool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        y, indices = self.pool(x)
        z: Tensor = self.unpool(y * 2, indices)
        return z


def encoder(layer: Callable[..., nn.TransformerEncoderLayer], dropout: float) -> nn.Module:
    """Two layers, without nested tensors, which eager mode alone has."""
    return nn.TransformerEncoder(layer(dropout=dropout), 2, enable_nested_tensor=False)


def parametrized(parametrize: Callable[[nn.Module], nn.Module]) -> nn.Module:
    return parametrize(nn.Linear(4, 3))

"""Random numbers of layers and initializers that have a seed: the same in every run and every program."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import torch

from argosy.engine.ops.seeded import seeded_dropout, seeded_random

_CPU = torch.device("cpu")


def uniform(shape: Sequence[Any], dtype: torch.dtype, low: float, high: float, seed: int) -> torch.Tensor:
    """Uniform from [low, high)."""
    return _drawn(shape, dtype, seed, is_normal=False) * (high - low) + low


def normal(shape: Sequence[Any], dtype: torch.dtype, mean: float, std: float, seed: int) -> torch.Tensor:
    """Gaussian."""
    return _drawn(shape, dtype, seed, is_normal=True) * std + mean


def dropout_mask(ones: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """The ones, each zero with probability p, the others divided by 1 - p; `clone(for_test=True)` gives the ones."""
    mask: torch.Tensor = seeded_dropout(ones, p, seed)
    return mask


def _drawn(shape: Sequence[Any], dtype: torch.dtype, seed: int, is_normal: bool) -> torch.Tensor:
    drawn: torch.Tensor = seeded_random(list(shape), seed, is_normal, dtype=dtype, device=_CPU)
    return drawn

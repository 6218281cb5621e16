"""seeded_random, seeded_dropout: random numbers with a seed of their own, the same in every run.

    w = seeded_random([784, 10], 7, False)      uniform from [0, 1), or Gaussian
    m = seeded_dropout(ones, 0.5, 7)            each element 0 with probability p, the others divided by 1 - p

They neither read nor change the generator of the process or of the program: a layer with a seed gets the same numbers
whatever else is in the program.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

import torch
from torch import Tensor

from argosy.engine.ops.op_spec import OpSpec, declare


def _drawn(size: Sequence[int], seed: int, is_normal: bool, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    draw = torch.randn if is_normal else torch.rand
    return draw(tuple(size), generator=generator, dtype=wide).to(dtype)


def _random(
    size: Sequence[int], seed: int, is_normal: bool, *, dtype: torch.dtype, device: torch.device
) -> Tensor:
    return _drawn(size, seed, is_normal, dtype).to(device)


def _random_fake(
    size: Sequence[int], seed: int, is_normal: bool, *, dtype: torch.dtype, device: torch.device
) -> Tensor:
    return torch.empty(tuple(size), dtype=dtype, device=device)


def _dropout(x: Tensor, p: float, seed: int) -> Tensor:
    keeps = _drawn(x.shape, seed, False, torch.float32).to(x.device) >= p
    scaled = x if p == 1 else x / (1 - p)
    return torch.where(keeps, scaled, torch.zeros_like(x))


def _dropout_fake(x: Tensor, p: float, seed: int) -> Tensor:
    return torch.empty_like(x)


seeded_random = declare(
    "seeded_random(SymInt[] size, int seed, bool is_normal, *, ScalarType dtype, Device device) -> Tensor",
    _random,
    _random_fake,
)
seeded_dropout = declare("seeded_dropout(Tensor x, float p, int seed) -> Tensor", _dropout, _dropout_fake)
SPECS = (OpSpec(seeded_random, _random), OpSpec(seeded_dropout, _dropout))

"""Initial values of rows: a function of the seed, the table's name, the id and the column only.

So they do not depend on the number of servers, the order in which ids arrive, or restarts: each value is computed from
one output of splitmix64 (Steele, Lea, Flood 2014), whose state is a hash of the four.
"""

# SPDX-License-Identifier: Apache-2.0
import hashlib
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from argosy.engine.ps.table.spec import RowInit

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_TAIL = 0.022750131948179195
"""The probability that a normal variable is more than 2 deviations below its mean."""


def first_values(init: RowInit, name: str, ids: Tensor, dim: int) -> Tensor:
    """The initial values of these rows, float32 [n, dim]."""
    if init.kind == "constant":
        return torch.full((len(ids), dim), init.a, dtype=torch.float32)
    uniform: Tensor = torch.from_numpy(_uniform(_key(init.seed, name), ids.numpy(), dim))
    if init.kind == "uniform":
        return uniform.mul_(init.b - init.a).add_(init.a).float()
    if init.kind == "truncated_normal":
        uniform.mul_(1 - 2 * _TAIL).add_(_TAIL)
    normal: Tensor = torch.special.ndtri(uniform)
    return normal.mul_(init.b).add_(init.a).float()


def _key(seed: int, name: str) -> NDArray[np.uint64]:
    digest = hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=8).digest()
    return np.frombuffer(digest, dtype="<u8")


def _uniform(key: NDArray[np.uint64], ids: NDArray[Any], dim: int) -> NDArray[np.float64]:
    """Numbers in the open interval (0, 1): [n, dim]."""
    rows = _mixed(_mixed(ids.astype(np.uint64)) + key)
    columns = np.arange(1, dim + 1, dtype=np.uint64) * _GOLDEN
    bits = _mixed(rows[:, None] + columns) >> np.uint64(11)
    return (bits.astype(np.float64) + 0.5) * 2.0**-53


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser: every bit of the result depends on every bit of x."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))

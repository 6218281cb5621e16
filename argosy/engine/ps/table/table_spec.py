"""The specification of a sparse table, plain values that can be written as JSON; and the initial values of its rows.

An initial value is a function of the seed, the table's name, the id and the column only. So it does not depend on the
number of servers, the order in which ids arrive, or restarts: it is computed from one output of splitmix64 (Steele,
Lea, Flood 2014), whose state is a hash of the four.
"""

# SPDX-License-Identifier: Apache-2.0
import hashlib
import math
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.engine.ps.table.row_optimizers import checked_settings

_INITS = ("constant", "uniform", "normal", "truncated_normal")
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_TAIL = 0.022750131948179195
"""The probability that a normal variable is more than 2 deviations below its mean."""


@dataclass(frozen=True)
class RowInit:
    """The distribution of the initial values of a row."""

    kind: str = "constant"
    """constant: a; uniform: a to b; normal: mean a, deviation b; truncated_normal: the same, within 2 deviations."""
    a: float = 0.0
    b: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in _INITS:
            raise UnknownNameError(
                f"no initializer {self.kind!r} for rows of a table; use {', '.join(_INITS)}"
            )
        if not (math.isfinite(self.a) and math.isfinite(self.b)):
            raise ConfigError(
                f"initializer {self.kind}({self.a}, {self.b}) is not finite; give two plain numbers"
            )
        if self.kind == "uniform" and self.a > self.b:
            raise ConfigError(
                f"initializer uniform({self.a}, {self.b}) is no range; give the smaller one first"
            )
        if self.kind.endswith("normal") and self.b < 0:
            raise ConfigError(f"initializer {self.kind} has the deviation {self.b}; give 0 or more")


@dataclass(frozen=True)
class RowOptimizer:
    """How a push changes a row; `row_optimizers.py` lists the kinds and their settings."""

    kind: str = "sgd"
    settings: dict[str, float] = field(default_factory=dict)
    """Those that differ from the defaults; `l2` is weight decay added to the gradient."""

    def __post_init__(self) -> None:
        checked_settings(self.kind, self.settings)


@dataclass(frozen=True)
class TableSpec:
    """One sparse table."""

    name: str
    dim: int
    """Floats in a row's value."""
    initializer: RowInit = field(default_factory=RowInit)
    optimizer: RowOptimizer = field(default_factory=RowOptimizer)
    memory_rows: int = 0
    """0: all rows stay in memory; else about this many, and the others are on disk."""
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a table has no name; give it one")
        if self.dim < 1:
            raise ConfigError(f"table {self.name!r} has rows of {self.dim} floats; use 1 or more")
        if self.memory_rows < 0:
            raise ConfigError(
                f"table {self.name!r} has memory_rows={self.memory_rows}; use 0 for all, or the number of rows"
            )
        if self.dtype != "float32":
            raise ConfigError(f"table {self.name!r} is {self.dtype}; tables hold float32 only")

    @property
    def file_name(self) -> str:
        """The name of the table as part of a file's name."""
        return quote(self.name, safe="@+,=")


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

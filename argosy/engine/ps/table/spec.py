"""The specification of a sparse table: plain values that can be written as JSON."""

# SPDX-License-Identifier: Apache-2.0
import math
from dataclasses import dataclass, field
from urllib.parse import quote

from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.engine.ps.table.row_optimizers import checked_settings

_INITS = ("constant", "uniform", "normal", "truncated_normal")


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
    padding_idx: int | None = None
    """This id reads as zeros; it is never stored or updated."""
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

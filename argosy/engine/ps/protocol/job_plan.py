"""The plan of a job with parameter servers: processes, mode, and the placement of variables and tables."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from dataclasses import dataclass

from argosy.engine.ps.protocol.slicing import VariableBlock
from argosy.engine.ps.table.table_spec import TableSpec


@dataclass(frozen=True)
class Dense:
    """A dense variable, sharded into blocks on the servers."""

    name: str
    gradient: str
    shape: tuple[int, ...]
    rate: str
    """The variable that holds its learning rate."""
    blocks: tuple[VariableBlock, ...]

    @property
    def rows(self) -> list[int]:
        return [block.rows for block in self.blocks]


@dataclass(frozen=True)
class Compensation:
    """DC-ASGD: g + lambda · g² · (w - the value that g was computed with)."""

    strength: float = 0.04
    """lambda; of the adaptive form lambda0, which is divided by the root of the mean square of g."""
    decay: float | None = None
    """Of that mean square; None: lambda is constant."""


@dataclass(frozen=True)
class JobPlan:
    """A job with parameter servers."""

    endpoints: tuple[str, ...]
    trainers: int
    mode: str = "sync"
    dense: tuple[Dense, ...] = ()
    tables: tuple[TableSpec, ...] = ()
    compensation: Compensation | None = None
    k_steps: int = 1
    """geo: trainers synchronize their deltas every k steps."""
    merged_steps: int = 1
    """async: gradients of this many steps are summed before they are sent."""
    pull_every: int = 1
    """async: parameters are pulled after this many pushes."""
    norms: tuple[tuple[int, ...], ...] = ()
    """For each optimizer, the servers that have a part of the norm that it clips by."""
    optimizers: tuple[str, ...] = ()
    """Descriptions of the optimizers: trainers and servers compare them."""
    initialised_by_trainer: bool = False
    """True: trainer 0 sends the initial values; else the servers' startup programs compute them."""

    @property
    def is_synchronous(self) -> bool:
        """True if the trainers do their steps together: sync and half_async."""
        return self.mode in ("sync", "half_async")

    def blocks_of(self, server: int) -> Iterator[tuple[Dense, VariableBlock]]:
        """The blocks of a server, with their variables."""
        for variable in self.dense:
            for block in variable.blocks:
                if block.server == server:
                    yield variable, block

    def described(self) -> list[str]:
        """Name and shape of every block."""
        return [f"{block.name}{list(block.shape)}" for variable in self.dense for block in variable.blocks]

    def table(self, name: str) -> TableSpec:
        return next(table for table in self.tables if table.name == name)

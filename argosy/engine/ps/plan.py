"""What trainers and servers agree on: who they are, the mode, and what lies where."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from dataclasses import dataclass

from argosy.engine.ps.slicing import Block
from argosy.engine.ps.table.spec import TableSpec

MODES = ("sync", "async", "half_async", "geo")


@dataclass(frozen=True)
class Dense:
    """A variable whose blocks lie on the servers."""

    name: str
    gradient: str
    shape: tuple[int, ...]
    rate: str
    """The variable that holds its learning rate."""
    blocks: tuple[Block, ...]

    @property
    def rows(self) -> list[int]:
        return [block.rows for block in self.blocks]


@dataclass(frozen=True)
class Compensation:
    """DC-ASGD: g + lambda · g² · (w - what the trainer had when it computed g)."""

    strength: float = 0.04
    """lambda; of the adaptive form lambda0, which is divided by the root of the mean square of g."""
    decay: float | None = None
    """Of that mean square; None: lambda is constant."""


@dataclass(frozen=True)
class Plan:
    """A job with parameter servers."""

    endpoints: tuple[str, ...]
    trainers: int
    mode: str = "sync"
    dense: tuple[Dense, ...] = ()
    tables: tuple[TableSpec, ...] = ()
    compensation: Compensation | None = None
    k_steps: int = 1
    """geo: trainers exchange their changes every k steps."""
    merged_steps: int = 1
    """async: gradients of so many steps are added up before they are sent."""
    pull_every: int = 1
    """async: parameters are fetched after every so many pushes."""
    norms: tuple[tuple[int, ...], ...] = ()
    """Of each optimizer the servers that have a part of the norm that it clips by."""
    optimizers: tuple[str, ...] = ()
    """What updates the variables, in words: trainers and servers compare them."""
    initialised_by_trainer: bool = False
    """True: trainer 0 gives the servers the first values; else their startup programs do."""

    @property
    def is_in_step(self) -> bool:
        """True if the trainers do their steps together, and wait for each other in each of them."""
        return self.mode in ("sync", "half_async")

    def blocks_of(self, server: int) -> Iterator[tuple[Dense, Block]]:
        """What a server keeps."""
        for variable in self.dense:
            for block in variable.blocks:
                if block.server == server:
                    yield variable, block

    def described(self) -> list[str]:
        """Name and shape of every block."""
        return [f"{block.name}{list(block.shape)}" for variable in self.dense for block in variable.blocks]

    def table(self, name: str) -> TableSpec:
        return next(table for table in self.tables if table.name == name)

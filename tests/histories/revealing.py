"""What the servers of an attacked job keep: per server a vector that shows which pushes count and their order; a table.

    w0 on server 0   [coordinate 0, coordinate 1, …, register]      push i: coordinate i += 1, register <- 31·x + i + 1
    w1 on server 1   [coordinate 0, coordinate 1, …, register]
    table            row i·servers + s on server s: push i adds 1

See `checker.py` for what the values say.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

import torch
from torch import Tensor

from argosy.engine.ps.protocol.job_plan import Dense, JobPlan
from argosy.engine.ps.protocol.slicing import VariableBlock
from argosy.engine.ps.table.table_spec import RowInit, RowOptimizer, TableSpec
from tests.engine.ps.served import PlainSgd
from tests.histories.checker import MODULUS, MULTIPLIER

TABLE = TableSpec("table", 1, RowInit("constant", 0.0), RowOptimizer("sgd"))


def plan_of(endpoints: Sequence[str], trainers: int, mode: str, size: int) -> JobPlan:
    """A vector of so many coordinates on each server, and a table over all servers."""
    dense = tuple(
        Dense(
            f"w{s}", f"w{s}@GRAD", (size + 1,), "rate", (VariableBlock(f"w{s}", 0, 0, (size + 1,), True, s),)
        )
        for s in range(len(endpoints))
    )
    return JobPlan(tuple(endpoints), trainers, mode, dense, (TABLE,))


def gradient_of(index: int, size: int, factor: float = 1.0) -> Tensor:
    """Push `index`; sync takes the mean over the trainers, so that `factor` is their number there."""
    gradient = torch.zeros(size + 1, dtype=torch.float64)
    gradient[index], gradient[-1] = factor, factor * (index + 1)
    return gradient


class RevealingUpdater(PlainSgd):
    """The optimizer of one server. float64 holds the register exactly.

    A server answers pulls while it applies pushes, so that a pull may contain a part of an update. Here an update
    becomes visible as a whole: memoryview copies under the GIL, as the sending of a small frame does.
    """

    def __init__(self, name: str, size: int, adds: bool) -> None:
        """`adds`: geo sends what is to be added; the register is not used."""
        super().__init__(**{name: torch.zeros(size + 1, dtype=torch.float64)})
        self._adds = adds

    def apply_block(self, block: str, gradient: Tensor, rate: float, backup: Tensor | None) -> None:
        updated = self._values[block] + gradient
        if not self._adds:
            updated[-1] = (MULTIPLIER * self._values[block][-1] + gradient[-1]) % MODULUS
        memoryview(self._values[block].numpy())[:] = memoryview(updated.numpy())

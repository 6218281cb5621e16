"""Alternatives: programs with the same variables as one that the user runs; the executor runs one of them in each step.

    Executor.run(program)  ──▶ program.alternatives.begin(program) ──▶ the program of this step ──▶ …end(…)

They compute the same values in another order, or send them in another way: see distributed/auto/autotune.py. A copy of
a program has no alternatives.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from argosy.engine.ir.program import Program


class Alternatives(Protocol):
    """Chooses the program of each training step; all ranks choose the same one."""

    def begin(self, program: Program) -> Program:
        """Called before a training step of `program`: what to run; `program` itself, or one with the same variables."""
        ...

    def end(self, runs: int) -> None:
        """Called after the step; `runs`: how often its compiled program has run, 1 for the first time."""
        ...

    def cancel(self) -> None:
        """Called instead of `end` if the step raised."""
        ...

    def state(self) -> dict[str, Any]:
        """What a checkpoint stores, as JSON values."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the state of a checkpoint; all ranks call it together."""
        ...

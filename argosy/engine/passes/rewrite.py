"""Run passes on a program itself, so that what they did is seen when it is printed, copied and saved."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from argosy.engine.ir.program import Program
from argosy.engine.passes.base import Pass, Report, run_passes


def rewrite(program: Program, passes: Sequence[Pass]) -> list[Report]:
    """Run the passes; a new node with `stands_for` in its meta takes over that node's variables."""
    reports = run_passes(program.graph, passes)
    for node in program.graph.nodes:
        if (old := node.meta.pop("stands_for", None)) is not None:
            program.recorder.rebind(old, node)
    program.touch()
    return reports

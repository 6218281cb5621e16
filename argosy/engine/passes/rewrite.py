"""Run passes on a program itself, so that the result is what is printed, copied and saved."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from argosy.engine.ir.program import Program
from argosy.engine.passes.base import Pass, Report, run_passes


def rewrite(program: Program, passes: Sequence[Pass]) -> list[Report]:
    """Run the passes; variables of the node in a new node's meta `replaces` are bound to the new node."""
    reports = run_passes(program.graph, passes)
    for node in program.graph.nodes:
        if (old := node.meta.pop("replaces", None)) is not None:
            program.recorder.rebind(old, node)
    program.touch()
    return reports

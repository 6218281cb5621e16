"""The base class of passes, and what runs a list of them: on a graph, or on a program."""

# SPDX-License-Identifier: Apache-2.0
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import fx

from argosy.engine import env
from argosy.engine.errors import ArgosyError, ProgramError
from argosy.engine.ir.check_values import ValueCheck
from argosy.engine.ir.liveness import SizeOf
from argosy.engine.ir.program import Program
from argosy.engine.ir.strides import propagate, stale
from argosy.engine.ir.verify import verify
from argosy.engine.log import NOTICE, logger


@dataclass(frozen=True)
class Report:
    """The result of one pass: the number of rewrites, and a sentence about what matched and what did not."""

    changed: int
    text: str
    notices: tuple[str, ...] = ()
    """Lines that are logged at the default level."""
    warnings: tuple[str, ...] = ()


class Pass(ABC):
    """One rewrite of a graph; a frozen dataclass whose fields are its options."""

    name: ClassVar[str]
    keeps_strides: ClassVar[bool] = True
    """False: it gives new nodes the values of the replaced ones; the runner infers all values if strides differ."""

    @abstractmethod
    def run(self, graph: fx.Graph) -> Report:
        """Rewrite the graph in place. New nodes carry `val`, `role` and `source` in their meta."""

    def with_live_out(self, live_out: frozenset[fx.Node]) -> Self:
        """The same pass, which must not remove these nodes: their values are read after the step."""
        return self

    def with_sizes(self, size_of: SizeOf) -> Self:
        """The same pass, which plans for these sizes where the program's vary."""
        return self


def run_passes(
    graph: fx.Graph,
    passes: Sequence[Pass],
    logged: set[tuple[str, str]] | None = None,
    quiet: frozenset[str] = frozenset(),
) -> list[Report]:
    """Run the passes in order; each is timed and logged in one line, and verified if it has changed something.

    With ARGOSY_CHECK_PASSES=1 each pass is verified, and the values of all new and changed nodes are inferred after it
    and compared with their meta. A notice that is in `logged`, as (pass, line), is not logged again; `logged` is
    extended. Notices of the passes `quiet`, which run by default, are not logged.
    """
    logged = set() if logged is None else logged
    reports = []
    values = ValueCheck(graph) if env.flag("ARGOSY_CHECK_PASSES") else None
    may_be_stale = False
    for pass_, following in zip(passes, (*passes[1:], None), strict=False):
        began, before = time.perf_counter(), len(graph.nodes)
        try:
            report = pass_.run(graph)
            may_be_stale = may_be_stale or (report.changed > 0 and not pass_.keeps_strides)
            # Once for several such passes in a row: inferring the values takes longer than a pass.
            if may_be_stale and (values is not None or following is None or following.keeps_strides):
                may_be_stale = False
                propagate(graph, stale(graph))
            if report.changed or values is not None:
                verify(graph)
            if values is not None:
                values.check(graph)
        except ArgosyError as e:
            raise type(e)(f"pass {pass_.name}: {e}") from e
        except Exception as e:
            raise ProgramError(f"pass {pass_.name} failed: {type(e).__name__}: {e}") from e
        elapsed_ms = 1000 * (time.perf_counter() - began)
        logger.info(
            "pass %s: %d rewrites, %d -> %d nodes, %.1f ms. %s",
            pass_.name,
            report.changed,
            before,
            len(graph.nodes),
            elapsed_ms,
            report.text,
        )
        notices = () if pass_.name in quiet else report.notices
        for line in [line for line in notices if (pass_.name, line) not in logged]:
            logger.log(NOTICE, f"{line} ({pass_.name})" if line.startswith("---") else line)
        for line in [line for line in report.warnings if (pass_.name, line) not in logged]:
            logger.warning("%s", line)
        logged.update((pass_.name, line) for line in (*notices, *report.warnings))
        reports.append(report)
    return reports


def rewrite(program: Program, passes: Sequence[Pass]) -> list[Report]:
    """Run the passes on a program itself, so that the result is what is printed, copied and saved.

    Variables of the node in a new node's meta `replaces` are bound to the new node.
    """
    reports = run_passes(program.graph, passes)
    for node in program.graph.nodes:
        if (old := node.meta.pop("replaces", None)) is not None:
            program.recorder.rebind(old, node)
    program.touch()
    return reports


def new_collectives(graph: fx.Graph, *targets: object) -> list[fx.Node]:
    """The collectives that the current `minimize` added, in order; those of earlier calls are finalized."""
    return [n for n in graph.nodes if n.target in targets and not n.meta.get("finalized")]


def finalize_collectives(graph: fx.Graph) -> None:
    """Exclude all present collectives from the passes of later `minimize` calls."""
    for node in graph.nodes:
        if node.meta.get("role") == "communicate":
            node.meta["finalized"] = True

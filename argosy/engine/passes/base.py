"""What a pass is, and how a list of them is run."""

# SPDX-License-Identifier: Apache-2.0
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import fx

from argosy.engine.errors import ArgosyError, ProgramError
from argosy.engine.ir.verify import verify
from argosy.engine.log import NOTICE, logger


@dataclass(frozen=True)
class Report:
    """What a pass did: how many rewrites, and in words what it found, changed and left alone."""

    changed: int
    text: str
    said: tuple[str, ...] = ()
    """What the user is told by default."""


class Pass(ABC):
    """One rewrite of a graph; a frozen dataclass whose fields are its options."""

    name: ClassVar[str]
    keeps_numerics: ClassVar[bool] = True
    """False: results may differ from those of the plain program by more than rounding."""

    @abstractmethod
    def run(self, graph: fx.Graph) -> Report:
        """Rewrite the graph in place. New nodes carry `val`, `role` and `source` in their meta."""

    def keeping(self, kept: frozenset[fx.Node]) -> Self:
        """The same pass, which leaves these nodes in the graph if it would take nodes out: they are read after it."""
        return self


def run_passes(
    graph: fx.Graph, passes: Sequence[Pass], told: set[tuple[str, str]] | None = None
) -> list[Report]:
    """Run the passes in order; each is timed, verified and reported in one line of the log.

    What a pass says to the user is not said again if it is in `told`, which grows.
    """
    told = set() if told is None else told
    reports = []
    for one in passes:
        began, before = time.perf_counter(), len(graph.nodes)
        try:
            report = one.run(graph)
            verify(graph)
        except ArgosyError as e:
            raise type(e)(f"pass {one.name}: {e}") from e
        except Exception as e:
            raise ProgramError(f"pass {one.name} failed: {type(e).__name__}: {e}") from e
        spent = 1000 * (time.perf_counter() - began)
        logger.info(
            "pass %s: %d rewrites, %d -> %d nodes, %.1f ms. %s",
            one.name,
            report.changed,
            before,
            len(graph.nodes),
            spent,
            report.text,
        )
        for line in [line for line in report.said if (one.name, line) not in told]:
            logger.log(NOTICE, f"{line} ({one.name})" if line.startswith("---") else line)
        told.update((one.name, line) for line in report.said)
        reports.append(report)
    return reports


def new_exchanges(graph: fx.Graph, *targets: object) -> list[fx.Node]:
    """The exchanges of the `minimize` under way, in order; those of an earlier one are settled, by its own strategy."""
    return [n for n in graph.nodes if n.target in targets and not n.meta.get("settled")]


def settle(graph: fx.Graph) -> None:
    """Keep what exchanges there are from the passes of a later `minimize`."""
    for node in graph.nodes:
        if node.meta.get("role") == "communicate":
            node.meta["settled"] = True

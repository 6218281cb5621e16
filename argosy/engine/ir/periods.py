"""Periods: nodes that run only in some steps, such as every k-th.

    every step     g = mm(…)
    other steps    accumulate([total], [g])                     meta["period"] = "!gradient_merge"
    due            m = merged(total, g, 0.25)                   meta["period"] = "gradient_merge"
                   momentum(w, m, …)                            reads m: runs in the same steps

A program is a straight line. Before each run the executor reads the step counters of the program's periods from the
scope, and runs the variant that has only the nodes of the periods that are due; each variant is compiled once. A node
that reads the result of a periodic node is periodic, too, with or without the meta. Ops that mutate a variable of the
scope in a period must not return it: later nodes would read the result, and run only then.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import fx

ReadVariable = Callable[[str], int]
"""The value of an int64 variable of the scope."""


@dataclass(frozen=True)
class Period:
    """When the nodes of this name run. Steps count from 1."""

    name: str
    step: str
    """The int64 variable with the number of completed steps; the program itself increments it."""
    every: int | str
    """k, or the int64 variable that has it; 0: not after `begin_step`."""
    begin_step: int = 0
    """Up to this step, it is due in every step."""
    last: str = ""
    """If k is in a variable: the int64 variable with the step in which it was due last, which the program writes."""

    def is_due(self, value: ReadVariable) -> bool:
        """True if it is due in the next step."""
        return self._is_due_in(value(self.step) + 1, value)

    def was_due(self, value: ReadVariable) -> bool:
        """True before the first step, and if it was due in the last one: no node of it is pending."""
        completed = value(self.step)
        if not completed or self.last:
            return not completed or value(self.last) == completed
        return self._is_due_in(completed, value)

    def _is_due_in(self, step: int, value: ReadVariable) -> bool:
        if step <= self.begin_step:
            return True
        every = value(self.every) if isinstance(self.every, str) else self.every
        if every == 0:
            return False
        return step - value(self.last) >= every if self.last else (step - self.begin_step) % every == 0

    def variables(self) -> tuple[str, ...]:
        """The variables that decide when it is due."""
        return tuple(name for name in (self.step, self.every, self.last) if name and isinstance(name, str))

    def __str__(self) -> str:
        """every 4 steps; in the first 10 steps, then every 4 steps"""
        first = "in the first step" if self.begin_step == 1 else f"in the first {self.begin_step} steps"
        if self.every == 0:
            return first
        often = "every step" if self.every == 1 else f"every {self.every} steps"
        return f"{first}, then {often}" if self.begin_step else often


def in_period(name: str, *, unless: bool = False) -> dict[str, Any]:
    """The meta of a node that runs when the period is due, or (`unless`) when it is not."""
    return {"period": f"!{name}" if unless else name}


def inherited(node: fx.Node) -> dict[str, Any]:
    """The meta of a new node that runs in the same steps as this one."""
    return {"period": node.meta["period"]} if "period" in node.meta else {}


def due_names(periods: Iterable[Period], value: ReadVariable) -> frozenset[str]:
    """The names of the periods that are due in the next step."""
    return frozenset(period.name for period in periods if period.is_due(value))


def unfinished(periods: Iterable[Period], value: ReadVariable) -> Period | None:
    """A period that was not due in the last step, so that its state is incomplete; None if there is none."""
    return next((period for period in periods if period.every != 0 and not period.was_due(value)), None)


def conditions(graph: fx.Graph) -> dict[fx.Node, frozenset[str]]:
    """For each periodic node its conditions: names of periods, with "!" if they must not be due."""
    conditions_of: dict[fx.Node, frozenset[str]] = {}
    for node in graph.nodes:
        tagged = {node.meta["period"]} if "period" in node.meta else set()
        from_inputs = [conditions_of[source] for source in node.all_input_nodes if source in conditions_of]
        if tagged or from_inputs:
            conditions_of[node] = frozenset(tagged).union(*from_inputs)
    return conditions_of


def inactive(graph: fx.Graph, due: frozenset[str]) -> set[fx.Node]:
    """The nodes that do not run if only these periods are due."""
    return {
        node for node, wanted in conditions(graph).items() if not all(_holds(name, due) for name in wanted)
    }


def condition_text(wanted: Iterable[str], periods: Iterable[Period]) -> str:
    """every 4 steps: the steps in which nodes with these conditions run."""
    known = {period.name: str(period) for period in periods}
    texts = []
    for name in sorted(wanted):
        text = known.get(name.removeprefix("!"), name.removeprefix("!"))
        texts.append(f"except {text}" if name.startswith("!") else text)
    return " and ".join(texts)


def _holds(condition: str, due: frozenset[str]) -> bool:
    return condition.removeprefix("!") not in due if condition.startswith("!") else condition in due

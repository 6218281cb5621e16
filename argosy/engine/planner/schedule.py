"""The operations of a rank's main thread in a step, in the order in which the runtime executes them.

compute (one or more nodes) · start (a collective or request) · wait (for one)
"""

# SPDX-License-Identifier: Apache-2.0
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from argosy.engine.errors import ConfigError
from argosy.engine.planner.groups import Placement
from argosy.engine.planner.lowering import Lowered, Primitive, lower
from argosy.engine.planner.ps_setup import PsSetup
from argosy.engine.planner.step_trace import ServerRequest, StepTrace

MAX_CYCLE = 64
"""Periods whose least common multiple is larger are simulated for so many steps."""
BEFORE, AFTER = -1, -2
"""Numbers of the executor's own time, before and after the nodes."""


@dataclass(frozen=True)
class Op:
    """One operation of the main thread."""

    kind: Literal["compute", "start", "wait"]
    nodes: tuple[int, ...] = ()
    """compute: the nodes, by their number in the trace; start, wait: the node that does it."""
    shares: tuple[float, ...] = ()
    """compute: the part of each node's time, 1 unless it has actions in between."""
    target: Primitive | ServerRequest | None = None


class Schedule:
    """The steps of a rank with this trace."""

    def __init__(self, trace: StepTrace, placement: Placement, ps: PsSetup | None) -> None:
        if trace.requests and ps is None:
            raise ConfigError(
                "the trace has requests to parameter servers, but no servers are described; give them"
            )
        self.trace, self.ps = trace, ps
        self.lowered: dict[str, Lowered] = {c.id: lower(c, placement) for c in trace.collectives}
        self._requests = {r.id: r for r in trace.requests}
        self._variants: dict[frozenset[str], list[Op]] = {}

    def primitives(self) -> list[Primitive]:
        """All that the trace may start."""
        lowered = self.lowered.values()
        return list(dict.fromkeys(p for one in lowered for _, p in (*one.start, *one.wait)))

    @property
    def cycle(self) -> int:
        """After so many steps, the same nodes run again."""
        periods = list((self.trace.periods or {}).values())
        if self.ps is not None:
            periods += [self.ps.k_steps, self.ps.merged_steps, self.ps.pull_every]
        return min(math.lcm(*periods) if periods else 1, MAX_CYCLE)

    def ops(self, step: int) -> list[Op]:
        """The operations of a step, counted from 1."""
        due = {name for name, every in (self.trace.periods or {}).items() if step % every == 0}
        if self.ps is not None:
            due |= {kind for kind in ("push", "pull", "barrier", "lookup") if _is_sent(kind, step, self.ps)}
        key = frozenset(due)
        if key not in self._variants:
            self._variants[key] = self._build(due)
        return self._variants[key]

    def _build(self, due: set[str]) -> list[Op]:
        ops: list[Op] = []
        pending: list[tuple[int, float]] = [(BEFORE, 1.0)] if self.trace.before_ms else []
        for number, node in enumerate(self.trace.nodes):
            if not _runs(node.period, due):
                continue
            actions = [op for action in node.actions for op in self._action(action, number, due)]
            if not actions:
                pending.append((number, 1.0))
                continue
            pending += [(number, node.lead)] if node.lead else []
            ops += [*_compute(pending), *actions]
            pending = [(number, 1 - node.lead)] if node.lead < 1 else []
        pending += [(AFTER, 1.0)] if self.trace.after_ms else []
        return [*ops, *_compute(pending)]

    def _action(self, action: str, node: int, due: set[str]) -> list[Op]:
        verb, _, target = action.partition(" ")
        request = self._requests.get(target)
        if request is not None:
            kind: Literal["start", "wait"] = "start" if verb == "start" else "wait"
            return [Op(kind, (node,), target=request)] if request.kind in due else []
        lowered = self.lowered[target]
        return [Op(kind, (node,), target=primitive) for kind, primitive in getattr(lowered, verb)]

    def parts_ms(self, op: Op) -> list[float]:
        """The mean milliseconds of each node of a compute operation."""
        trace = self.trace
        extra = {BEFORE: trace.before_ms, AFTER: trace.after_ms}
        times = (trace.nodes[n].ms + trace.gap_ms if n >= 0 else extra[n] for n in op.nodes)
        return [time * share for time, share in zip(times, op.shares, strict=True)]

    def node_name(self, number: int) -> str:
        """The name for reports."""
        return "(executor)" if number < 0 else self.trace.nodes[number].name

    def durations(self, draws: "Draws | None" = None) -> "Durations":
        """How long the operations take, with these draws."""
        return Durations(self, draws)


@dataclass(frozen=True)
class Draws:
    """Random deviations of node times: of the slowest of `count` ranks."""

    generator: np.random.Generator
    count: int


class Durations:
    """Seconds of operations; with `draws`, random from the nodes' spread.

    Between two waits all ranks of a class run independently, and the class arrives with its slowest rank. The time
    between them has the variance of its nodes together; the maximum of n normal values is drawn by its distribution
    function.
    """

    def __init__(self, schedule: Schedule, draws: Draws | None) -> None:
        self._schedule = schedule
        self._variance = [node.spread_ms**2 for node in schedule.trace.nodes]
        self._draws = draws
        self._memo: dict[int, tuple[list[float], list[float]]] = {}

    def of(self, ops: Sequence[Op]) -> list[float]:
        """The seconds of each operation of a step; 0 for those that do not compute."""
        if id(ops) not in self._memo:  # the schedule keeps them
            self._memo[id(ops)] = (
                [sum(self._schedule.parts_ms(op)) / 1e3 if op.kind == "compute" else 0.0 for op in ops],
                [self._variance_of(op) / 1e6 for op in ops],
            )
        means, variances = self._memo[id(ops)]
        if self._draws is None or not any(variances):
            return means
        seconds, section = list(means), list[int]()
        for place, op in enumerate(ops):
            section += [place] if op.kind == "compute" else []
            if op.kind == "wait" or place == len(ops) - 1:
                total = sum(variances[i] for i in section)
                if total > 0:
                    deviation = _largest(self._draws) * math.sqrt(total)
                    for i in section:
                        # Not less than a tenth of the mean: a normal distribution has negative values.
                        changed = means[i] + deviation * variances[i] / total
                        seconds[i] = max(changed, 0.1 * means[i])
                section = []
        return seconds

    def _variance_of(self, op: Op) -> float:
        if op.kind != "compute":
            return 0.0
        return sum(self._variance[n] * share for n, share in zip(op.nodes, op.shares, strict=True) if n >= 0)


def _largest(draws: Draws) -> float:
    """The largest of `count` standard normal values."""
    uniform = float(draws.generator.uniform())
    return normal_quantile(min(max(uniform, 1e-12) ** (1 / draws.count), 1 - 1e-12))


def normal_quantile(probability: float) -> float:
    """The inverse of the standard normal distribution function."""
    return statistics.NormalDist().inv_cdf(probability)


def _compute(pending: Sequence[tuple[int, float]]) -> list[Op]:
    if not pending:
        return []
    nodes, shares = zip(*pending, strict=True)
    return [Op("compute", nodes, shares=shares)]


def _runs(period: str, due: set[str]) -> bool:
    return not period or (period[1:] not in due if period.startswith("!") else period in due)


def _is_sent(kind: str, step: int, ps: PsSetup) -> bool:
    """Whether requests of this kind are sent in a step, counted from 1."""
    if kind == "lookup":
        return True
    if ps.mode == "geo":
        return step % ps.k_steps == 0
    if ps.mode == "async":
        every = ps.merged_steps if kind == "push" else ps.pull_every
        return step % every == 0
    return True

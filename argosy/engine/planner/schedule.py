"""The operations of a rank's main thread in a step, in the order in which the runtime executes them.

compute (one or more nodes) · start (a collective or request) · wait (for one)
"""

# SPDX-License-Identifier: Apache-2.0
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from argosy.engine.errors import ConfigError
from argosy.engine.planner.groups import Placement
from argosy.engine.planner.lowering import Lowered, Primitive, lower
from argosy.engine.planner.ps_setup import PsSetup
from argosy.engine.planner.step_trace import Request, StepTrace

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
    target: Primitive | Request | None = None


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
        pending: list[int] = [BEFORE] if self.trace.before_ms else []
        for number, node in enumerate(self.trace.nodes):
            if not _runs(node.period, due):
                continue
            waits_first = bool(node.actions) and node.actions[0].startswith("wait ")
            if not waits_first:
                pending.append(number)
            actions = [op for action in node.actions for op in self._action(action, number, due)]
            if actions and pending:
                ops.append(Op("compute", tuple(pending)))
                pending = []
            ops += actions
            if waits_first:
                pending.append(number)
        pending += [AFTER] if self.trace.after_ms else []
        return [*ops, Op("compute", tuple(pending))] if pending else ops

    def _action(self, action: str, node: int, due: set[str]) -> list[Op]:
        verb, _, target = action.partition(" ")
        request = self._requests.get(target)
        if request is not None:
            kind: Literal["start", "wait"] = "start" if verb == "start" else "wait"
            return [Op(kind, (node,), request)] if request.kind in due else []
        lowered = self.lowered[target]
        return [Op(kind, (node,), primitive) for kind, primitive in getattr(lowered, verb)]

    def node_name(self, number: int) -> str:
        """The name for reports."""
        return "(executor)" if number < 0 else self.trace.nodes[number].name

    def durations(self, draws: "Draws | None" = None) -> "Durations":
        return Durations(self.trace, draws)


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

    def __init__(self, trace: StepTrace, draws: Draws | None) -> None:
        self._ms = np.array([n.ms + trace.gap_ms for n in trace.nodes])
        self._variance = np.array([n.spread_ms**2 for n in trace.nodes])
        self._extra = {BEFORE: trace.before_ms, AFTER: trace.after_ms}
        self._draws = draws

    def of(self, ops: Sequence[Op]) -> list[float]:
        """The seconds of each operation of a step; 0 for those that do not compute."""
        means = [self._sum(op, self._ms, self._extra) / 1e3 for op in ops]
        if self._draws is None or not self._variance.any():
            return means
        variances = [self._sum(op, self._variance, {}) / 1e6 for op in ops]
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

    @staticmethod
    def _sum(op: Op, values: npt.NDArray[np.float64], extra: Mapping[int, float]) -> float:
        if op.kind != "compute":
            return 0.0
        inside = [number for number in op.nodes if number >= 0]
        return float(values[inside].sum()) + sum(extra.get(n, 0.0) for n in op.nodes if n < 0)


def _largest(draws: Draws) -> float:
    """The largest of `count` standard normal values."""
    uniform = float(draws.generator.uniform())
    return normal_quantile(min(max(uniform, 1e-12) ** (1 / draws.count), 1 - 1e-12))


def normal_quantile(probability: float) -> float:
    """The inverse of the standard normal distribution function."""
    return statistics.NormalDist().inv_cdf(probability)


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

"""Search the settings of a job by simulation: the program of each is built, compiled and simulated, and none is run.

    template, node times ──▶ setting ──▶ compiled program ──▶ step trace ──▶ simulation ──▶ candidate
                                ▲                                                              │
                                └──── settings that differ in one switch from the best two ◀───┘

The space has some hundred settings, and compiling a program takes a second: the search begins with how gradients travel
(flat, hierarchical, overlap, sharding; large and small buckets), then varies the size of buckets and the number of
communicators of the best.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import sympy

from argosy.distributed.auto.node_times import NodeTimes
from argosy.distributed.auto.setting import Setting, settings
from argosy.distributed.auto.step_traces import step_trace
from argosy.distributed.auto.template import Template
from argosy.engine.errors import ConfigError
from argosy.engine.planner.predict_step import predict
from argosy.engine.planner.prediction import Prediction
from argosy.engine.planner.step_trace import Memory, StepTrace
from argosy.engine.planner.topology import Topology
from argosy.engine.runtime.compile import Compiled, compile_program

T = TypeVar("T")
Sizes = Mapping[sympy.Symbol, int]
_SMALL_BUCKET_MB = 4
SAME = 0.005
"""Predictions that differ by less are called equal."""
_KEPT = 2
"""How many settings of a round the next one varies."""


@dataclass(frozen=True)
class Candidate:
    """A setting and its predicted step."""

    setting: Setting
    prediction: Prediction

    @property
    def examples_per_s(self) -> float:
        return self.prediction.examples_per_s


@dataclass
class Search:
    """Predicts settings of one program on one cluster; remembers what it has predicted."""

    template: Template
    times: NodeTimes
    topology: Topology
    fetches: Sequence[str] = ()
    sizes: Sizes = field(default_factory=dict)
    """Of the feeds, for the peak memory."""
    memory_bytes: int = 0
    """That a rank may have; 0: no limit."""
    progress: Callable[[Candidate], None] | None = None
    known: dict[Setting, Candidate | None] = field(default_factory=dict)
    """None: the setting does not fit the program or the cluster, or its step is that of another one."""
    rejected: dict[Setting, str] = field(default_factory=dict)
    """Why a setting does not fit."""
    _traces: set[object] = field(default_factory=set)

    @property
    def ranks(self) -> int:
        return self.topology.num_ranks

    @property
    def ranks_of_host(self) -> int:
        return self.ranks // self.topology.num_hosts

    def trace(self, setting: Setting) -> StepTrace:
        """The step of rank 0; raises ConfigError if the setting does not fit."""
        compiled = self.compiled(setting)
        memory = compiled.memory.report(self.template.program.name, self.sizes)
        breakdown = {k: v for k, v in memory.breakdown.__dict__.items() if isinstance(v, int)}
        peak = Memory(memory.peak_bytes, breakdown)
        return step_trace(
            compiled, self.times, self.ranks_of_host, self.topology.num_hosts == 1, peak, setting.text()
        )

    def compiled(self, setting: Setting) -> Compiled:
        """The compiled program of rank 0."""
        program = self.template.build(setting, self.ranks, self.topology.num_hosts)
        fetches = [program.var(name) for name in self.fetches]
        shares = self.topology.num_hosts == 1 and self.ranks > 1
        return compile_program(program, fetches, sizes=self.sizes, shares_memory=shares)

    def predicted(self, setting: Setting) -> Candidate | None:
        """The prediction of a setting, or None if it does not fit."""
        if setting not in self.known:
            try:
                trace = self.trace(setting)
                is_same = not self._is_new(trace) and setting != self.template.setting
                found = None if is_same else Candidate(setting, predict(trace, self.topology))
                self.known[setting] = found
            except ConfigError as e:
                self.known[setting], self.rejected[setting] = None, str(e)
            found = self.known[setting]
            if found is not None and self.progress is not None:
                self.progress(found)
        return self.known[setting]

    def _is_new(self, trace: StepTrace) -> bool:
        """False: another setting has the same step, as if all gradients fit into one bucket."""
        key = (tuple((n.op, n.ms, n.actions) for n in trace.nodes), trace.collectives)
        is_new = key not in self._traces
        self._traces.add(key)
        return is_new

    def best(self, changes_numerics: bool = False, changes_state: bool = True) -> list[Candidate]:
        """All predicted settings, the fastest first; the given one is among them.

        Settings that need more memory than a rank may have come last, and are tried with recompute.
        """
        given = self.template.setting
        allowed = settings(given, self.ranks, self.topology.num_hosts, changes_numerics, changes_state)
        first = {given.bucket_mb, _SMALL_BUCKET_MB}  # overlap needs several buckets
        self._predict([given])
        self._predict(s for s in allowed if s.bucket_mb in first and s.communicators == 1)
        for name in ("bucket_mb", "communicators"):
            for found in self.ranked()[:_KEPT]:
                value = getattr(found.setting, name)
                self._predict(s for s in allowed if replace(s, **{name: value}) == found.setting)
        if not any(map(self.fits, self.ranked())):
            self._predict(replace(c.setting, recompute=True) for c in self.ranked()[:_KEPT])
        return self.ranked()

    def fits(self, candidate: Candidate) -> bool:
        """Whether the peak memory of a rank is within the limit."""
        memory = candidate.prediction.memory
        return not self.memory_bytes or memory is None or memory.peak_bytes <= self.memory_bytes

    def _predict(self, wanted: Iterable[Setting]) -> None:
        for setting in wanted:
            self.predicted(setting)

    def ranked(self) -> list[Candidate]:
        """The predicted settings, the best first: `nearest_first`."""
        known = [candidate for candidate in self.known.values() if candidate is not None]
        return nearest_first(
            known,
            lambda c: (not self.fits(c), c.prediction.step_ms),
            lambda c: c.setting,
            self.template.setting,
        )


def nearest_first(
    items: Iterable[T],
    order: Callable[[T], tuple[bool, float]],
    setting_of: Callable[[T], Setting],
    given: Setting,
) -> list[T]:
    """Sort by (does not fit, time); of those as fast as the fastest, the nearest to the given setting is the first."""
    ranked = sorted(items, key=order)
    if not ranked:
        return []
    unfit, fastest = order(ranked[0])
    equal = [one for one in ranked if order(one) <= (unfit, (1 + SAME) * fastest)]
    first = min(equal, key=lambda one: _distance(setting_of(one), given))
    return [first, *(one for one in ranked if one is not first)]


def _distance(a: Setting, b: Setting) -> int:
    return sum(getattr(a, name) != getattr(b, name) for name in a.__dataclass_fields__)

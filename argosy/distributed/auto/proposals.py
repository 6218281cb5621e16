"""Which settings a running job tries, in which order: predicted from a sketch of its step, families first.

A family has the same switches except the size of buckets. The best of each family comes first, because sizes near the
best one differ little, and because a family that the model misjudges is found out by one trial.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Hashable, Sequence
from dataclasses import replace

from argosy.distributed.auto.setting import Setting, settings
from argosy.distributed.auto.sketch import StepSketch
from argosy.distributed.auto.tuner import Proposal
from argosy.engine.errors import ConfigError
from argosy.engine.planner.predict_step import predict
from argosy.engine.planner.topology import Topology

_SLOWER = 1.03
"""Settings that are predicted to be this much slower than the current one are not tried."""
_MOVING = 0.98
"""Settings to which the variables must be moved are tried only if they are predicted to be this fast."""
_MOVED_RUN, _MOVED_SKIPPED = 8, 3
_SAME = 0.002
"""Predictions that differ by less are of the same step."""


def allowed_settings(
    given: Setting, ranks: int, hosts: int, changes_numerics: bool = False, bit_equal: bool = False
) -> list[Setting]:
    """The settings that a running job may switch between; `given` is the first."""
    found = [s for s in settings(given, ranks, hosts, changes_numerics) if s.has_state_of(given)]
    if bit_equal:
        order = sum_order(given, ranks, hosts)
        found = [s for s in found if sum_order(s, ranks, hosts) == order]
    return found


def sum_order(setting: Setting, ranks: int, hosts: int) -> Hashable:
    """Settings with the same value add gradients in the same order: their results are equal, bit for bit.

    Two ranks have one order only, and shared memory adds in the order of the ranks. Over sockets the order of an
    element depends on its place in the bucket; between two hosts, after sums inside of them, it does not.
    """
    if ranks == 2 or hosts == 1:
        return setting.wire_dtype
    if setting.hierarchical and hosts == 2:
        return setting.wire_dtype, "hosts"
    return setting.wire_dtype, setting.hierarchical, setting.bucket_mb


def moves_variables(a: Setting, b: Setting, hosts: int) -> bool:
    """True: in one of them the ranks of a host share the variables, and in the other they do not."""
    return hosts == 1 and _shares(a) != _shares(b)


def _shares(setting: Setting) -> bool:
    return setting.divides_updates and not setting.overlap


def proposals(
    sketch: StepSketch, allowed: Sequence[Setting], current: Setting, topology: Topology
) -> tuple[list[Proposal], float]:
    """The settings to try, the most promising first, and the predicted step of the current one.

    Raises ConfigError if the current one does not fit the topology.
    """
    hosts = topology.num_hosts
    now = predict(sketch.trace(current, hosts), topology, repeats=0).step_ms
    found = []
    known: dict[Hashable, float] = {}
    for setting in allowed:
        moves = moves_variables(current, setting, hosts)
        ms = None if setting == current else _predicted(sketch, setting, topology, known)
        if ms is None or ms > now * (_MOVING if moves else _SLOWER):
            continue
        if _family(setting) == _family(current) and abs(ms - now) <= _SAME * now:
            continue
        run, skipped = (_MOVED_RUN, _MOVED_SKIPPED) if moves else (1, 0)
        found.append(Proposal(setting, ms, run, skipped))
    return by_family(sorted(found, key=lambda p: p.predicted_ms)), now


def by_family(ranked: Sequence[Proposal]) -> list[Proposal]:
    """The best of each family, then the second best, and so on; none whose prediction equals another one's."""
    families: dict[Setting, list[Proposal]] = {}
    for proposal in ranked:
        family = families.setdefault(_family(proposal.setting), [])
        if not family or proposal.predicted_ms > family[-1].predicted_ms * (1 + _SAME):
            family.append(proposal)
    longest = max(map(len, families.values()), default=0)
    return [family[i] for i in range(longest) for family in families.values() if i < len(family)]


def _family(setting: Setting) -> Setting:
    return replace(setting, bucket_mb=0)


def _predicted(
    sketch: StepSketch, setting: Setting, topology: Topology, known: dict[Hashable, float]
) -> float | None:
    """The predicted step; `known` has those of settings with the same trace, as if all fits into one bucket."""
    try:
        trace = sketch.trace(setting, topology.num_hosts)
        key = (trace.nodes, trace.collectives)
        if key not in known:
            known[key] = predict(trace, topology, repeats=0).step_ms
        return known[key]
    except ConfigError:  # the setting does not fit these hosts
        return None

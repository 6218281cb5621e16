"""Predict the training step of a job from the trace of a rank, or of all ranks, and the topology of the cluster."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from argosy.engine.errors import ConfigError
from argosy.engine.intervals import length, overlap, union, within
from argosy.engine.planner.critical_path import PathItem, critical_path
from argosy.engine.planner.groups import Placement
from argosy.engine.planner.prediction import LinkUse, Prediction, bound_sentence
from argosy.engine.planner.ps_setup import PsSetup
from argosy.engine.planner.schedule import Schedule
from argosy.engine.planner.simulate import Actor, Simulated, Simulation, Started
from argosy.engine.planner.step_trace import ServerRequest, StepTrace
from argosy.engine.planner.symmetry import classes_of
from argosy.engine.planner.topology import Topology

REPEATS = 20
MAX_ASYNC = 64
"""More asynchronous workers than this are simulated as so many groups, whose workers send together."""


@dataclass(frozen=True)
class Predicted:
    """A prediction, and the simulation behind it, for `timeline_file`."""

    prediction: Prediction
    simulation: Simulation
    nominal: Simulated


def predict(
    traces: StepTrace | Sequence[StepTrace],
    topology: Topology,
    ps: PsSetup | None = None,
    repeats: int = REPEATS,
    seed: int = 0,
) -> Prediction:
    """The predicted step of a job whose ranks have this trace, or one each."""
    return simulate_step(traces, topology, ps, repeats, seed).prediction


def simulate_step(
    traces: StepTrace | Sequence[StepTrace],
    topology: Topology,
    ps: PsSetup | None = None,
    repeats: int = REPEATS,
    seed: int = 0,
) -> Predicted:
    """As `predict`, with the simulation."""
    per_rank = [traces] if isinstance(traces, StepTrace) else list(traces)
    simulation = prepare(per_rank, topology, ps)
    nominal = simulation.run()
    has_spread = any(node.spread_ms for trace in per_rank for node in trace.nodes)
    count = repeats if has_spread else 0
    drawn = [simulation.run(seed + number).step_s * 1e3 for number in range(count)]
    times = np.array(drawn or [nominal.step_s * 1e3])
    low, step, high = (float(v) for v in np.percentile(times, [5, 50, 95]))
    nominal_ms = nominal.step_s * 1e3
    path = critical_path(nominal)
    causes = _causes(path)
    links = _links(nominal, nominal_ms)
    actor = max(nominal.actors, key=lambda one: one.step_ends[-1])
    exposed = sum(actor.exposed[nominal.warm_up :]) * 1e3 / nominal.num_measured
    communication, hidden = _communication(nominal, actor)
    num_started = len([s for s in actor.started if s.step > nominal.warm_up]) / nominal.num_measured
    examples = sum(t.examples for t in per_rank) * (topology.num_ranks if len(per_rank) == 1 else 1)
    prediction = Prediction(
        ranks=topology.num_ranks,
        hosts=topology.num_hosts,
        step_ms=step,
        low_ms=low,
        high_ms=high,
        nominal_ms=nominal_ms,
        busy_ms=nominal_ms - exposed,
        exposed_ms=exposed,
        communication_ms=communication,
        hidden_ms=hidden,
        links=links,
        critical_path=tuple(path),
        causes=causes,
        bound=bound_sentence(causes, path, links, nominal_ms, exposed, num_started),
        examples_per_s=examples / step * 1e3 if step > 0 else 0.0,
        memory=per_rank[0].memory,
        repeats=max(count, 1),
        classes=len(nominal.actors),
        events=nominal.num_events,
    )
    return Predicted(prediction, simulation, nominal)


def prepare(
    traces: Sequence[StepTrace], topology: Topology, ps: PsSetup | None = None, one_by_one: bool = False
) -> Simulation:
    """The simulation of ranks with one trace for all of them, or one each.

    `one_by_one`: every rank is a class of its own, as asynchronous workers always are.
    """
    placement = Placement(topology)
    size = placement.size
    if len(traces) not in (1, size):
        raise ConfigError(
            f"{len(traces)} traces for {size} ranks; give one trace for all ranks, or one for each of them"
        )
    _check_same_collectives(traces)
    if ps is not None and ps.link and ps.link not in topology.links:
        raise ConfigError(
            f"the servers have the link {ps.link!r}, which is not described (known: {', '.join(topology.links)})"
        )
    slowdown = {straggler.rank: straggler.slowdown for straggler in topology.stragglers}
    one_by_one = one_by_one or (ps is not None and not ps.is_synchronous)
    schedules: list[Schedule] = []
    memo: dict[tuple[int, float], Schedule] = {}
    label_of: dict[tuple[object, ...], int] = {}
    labels = []
    for rank in range(size):
        number = rank if len(traces) > 1 else 0
        factor = slowdown.get(rank, 1.0) / placement.hosts[int(placement.host_of[rank])].speed
        if (number, factor) not in memo:
            trace = traces[number] if factor == 1.0 else traces[number].scaled(factor)
            memo[number, factor] = Schedule(trace, placement, ps)
        key = (number, factor, _group_of(rank, size, ps) if one_by_one else None)
        if key not in label_of:
            label_of[key] = len(schedules)
            schedules.append(memo[number, factor])
        labels.append(label_of[key])
    names = [p.group for schedule in memo.values() for p in schedule.primitives()]
    return Simulation(placement, schedules, classes_of(placement, labels, names), labels, ps)


def _group_of(rank: int, size: int, ps: PsSetup | None) -> int:
    return rank if ps is None or size <= MAX_ASYNC else rank * MAX_ASYNC // size


def _check_same_collectives(traces: Sequence[StepTrace]) -> None:
    """All ranks of a group must start the same collectives in the same order, or the simulation would not end."""
    first = [(c.id, c.kind, c.group) for c in traces[0].collectives]
    for rank, trace in enumerate(traces):
        if [(c.id, c.kind, c.group) for c in trace.collectives] != first:
            raise ConfigError(
                f"the traces of rank 0 and rank {rank} have other collectives; record one step of one job"
            )


def _causes(path: Sequence[PathItem]) -> dict[str, float]:
    total: dict[str, float] = {}
    for item in path:
        for cause, ms in item.causes.items():
            total[cause] = total.get(cause, 0.0) + ms
    return dict(sorted(total.items(), key=lambda entry: -entry[1]))


def _links(simulated: Simulated, step_ms: float) -> tuple[LinkUse, ...]:
    """The use of links by the collectives of the measured steps, and by requests."""
    taken: dict[object, float] = {}
    started = {s: None for actor in simulated.actors for s in actor.started if s.step > simulated.warm_up}
    for one in started:
        for key, amount in one.cost.takes.items() if one.cost is not None else ():
            taken[key] = taken.get(key, 0.0) + amount / simulated.num_measured
    if any(isinstance(one.target, ServerRequest) for one in started):
        steps = len(simulated.actors[0].step_ends)
        taken = {
            key: resource.served / steps for key, resource in simulated.resources.items() if resource.served
        }
    uses = []
    for key, resource in simulated.resources.items():
        if nbytes := taken.get(key, 0.0):
            used = nbytes / resource.capacity / (step_ms / 1e3) if step_ms else 0.0
            uses.append(LinkUse(resource.name, resource.kind, nbytes / 1e6, used))
    return tuple(sorted(uses, key=lambda use: -use.utilization))


def _communication(simulated: Simulated, actor: Actor) -> tuple[float, float]:
    """Milliseconds of a step with communication in progress, and of these with computation at the same time."""
    window = simulated.window(actor)
    busy = union(_interval(one, actor) for one in actor.started)
    computing = union((span.began, span.ended) for span in actor.spans)
    scale = 1e3 / simulated.num_measured
    inside = within(busy, window)
    return length(inside) * scale, overlap(inside, within(computing, window)) * scale


def _interval(started: Started, actor: Actor) -> tuple[float, float]:
    """From its begin, or from the moment at which this rank waits for it, to its end."""
    waits = started.waits.get(actor.number)
    begin = min([started.began, *(wait[0] for wait in waits)]) if waits else started.began
    return begin, started.ended if started.ended >= 0 else begin

"""What the measured steps waited for: followed backwards from the end of the last rank to end.

Each piece of work was begun by the end of another one: the node before it on the same rank, the collective that the
rank was blocked on, the slowest rank's start of this collective, or the collective before it in the communicator.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from dataclasses import dataclass

from argosy.engine.planner.lowering import Primitive
from argosy.engine.planner.schedule import Op
from argosy.engine.planner.simulate import Simulated, Started
from argosy.engine.planner.step_trace import ServerRequest
from argosy.engine.planner.work_record import WorkRecord


@dataclass(frozen=True)
class PathItem:
    """A node, a collective or a request on the critical path."""

    kind: str
    """forward, backward, optimize, communicate, executor, network, shared memory, flow, queue of servers, …"""
    name: str
    ms: float
    """In a step, on average."""
    causes: dict[str, float]
    """Milliseconds by cause: computation, bandwidth of ethernet, latency of ethernet, …"""


def critical_path(simulated: Simulated) -> list[PathItem]:
    """The work of the critical path, the longest first."""
    last = max(simulated.actors, key=lambda actor: actor.step_ends[-1])
    begin, _ = simulated.window(last)
    total: dict[tuple[str, str], dict[str, float]] = {}
    record = last.last
    while record is not None and record.ended > begin:
        inside = record.ended - max(record.began, begin)
        share = inside / (record.ended - record.began) if record.ended > record.began else 0.0
        for kind, name, cause, seconds in _parts(simulated, record):
            causes = total.setdefault((kind, name), {})
            causes[cause] = causes.get(cause, 0.0) + seconds * share * 1e3 / simulated.num_measured
        record = record.previous
    items = [PathItem(*key, sum(causes.values()), causes) for key, causes in total.items()]
    return sorted((item for item in items if item.ms > 0), key=lambda item: -item.ms)


def _parts(simulated: Simulated, record: WorkRecord) -> Iterator[tuple[str, str, str, float]]:
    """Kind, name, cause and seconds of the parts of a piece of work."""
    seconds, about = record.ended - record.began, record.about
    if isinstance(about, Op):
        yield from _nodes(simulated, record, about)
    elif isinstance(about, Started):
        yield from _collective(record, about, seconds)
    else:
        assert isinstance(about, ServerRequest), about
        cause = {"flow": "network of the servers", "service": "threads of the servers"}
        name = f"{about.kind} {about.what or about.id}"
        yield record.kind, name, cause.get(record.kind, "updates of the servers"), seconds


def _nodes(simulated: Simulated, record: WorkRecord, op: Op) -> Iterator[tuple[str, str, str, float]]:
    schedule = simulated.actors[record.actor].schedule
    trace = schedule.trace
    weights = schedule.parts_ms(op)
    total = sum(weights) or 1.0
    for number, weight in zip(op.nodes, weights, strict=True):
        kind = trace.nodes[number].role if number >= 0 else "executor"
        yield kind, schedule.node_name(number), "computation", (record.ended - record.began) * weight / total


def _collective(
    record: WorkRecord, started: Started, seconds: float
) -> Iterator[tuple[str, str, str, float]]:
    cost, target = record.cost, started.target
    assert cost is not None, started
    assert isinstance(target, Primitive), started
    name = f"{target.kind} {target.collective.what or target.collective.id} ({target.group})"
    kind = "network" if record.kind == "network" else "shared memory"
    for part, alone in cost.parts.items():
        cause = part if part == "measured" else f"{part} of {cost.bottleneck}"
        yield kind, name, cause, alone
    if seconds > cost.alone_s:
        shared = "bandwidth" if record.kind == "network" else "memory"
        yield kind, name, f"{shared} of {cost.bottleneck}", seconds - cost.alone_s

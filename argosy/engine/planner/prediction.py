"""The result of a simulation: times, bytes, the critical path, and what bounds the step in a sentence."""

# SPDX-License-Identifier: Apache-2.0
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from argosy.engine.planner.critical_path import PathItem
from argosy.engine.planner.step_trace import Memory

FORMAT, VERSION = "argosy.prediction", 1


@dataclass(frozen=True)
class LinkUse:
    """What a step sends over a link, or reads and writes in the memory of a host."""

    name: str
    kind: str
    megabytes: float
    """In a step, on average; units of 1e6 bytes."""
    utilization: float
    """The part of its capacity that is used, averaged over the step."""


@dataclass(frozen=True)
class Prediction:
    """A predicted training step."""

    ranks: int
    hosts: int
    step_ms: float
    """The median of the repetitions."""
    low_ms: float
    high_ms: float
    """The 5th and the 95th percentile."""
    nominal_ms: float
    """If every node takes its mean time on every rank; the numbers below are of this step."""
    busy_ms: float
    """The main thread's own time, with interference."""
    exposed_ms: float
    """The time in which the main thread waits for communication, or does it."""
    communication_ms: float
    """The time in which any collective or request of the rank is in progress."""
    hidden_ms: float
    """Communication while the main thread computes."""
    links: tuple[LinkUse, ...]
    critical_path: tuple[PathItem, ...]
    causes: dict[str, float]
    """Milliseconds of the critical path by cause, the longest first."""
    bound: str
    """What bounds the step, in a sentence."""
    examples_per_s: float
    """Of all ranks; 0 if the batch is unknown."""
    memory: Memory | None
    """Of a rank, as in the trace."""
    repeats: int
    classes: int
    """Classes of ranks that were simulated."""
    events: int
    """Of one repetition."""

    def to_data(self) -> dict[str, Any]:
        """For JSON."""
        return {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}


def bound_sentence(
    causes: dict[str, float],
    path: Sequence[PathItem],
    links: Sequence[LinkUse],
    step_ms: float,
    exposed_ms: float,
    num_collectives: float,
) -> str:
    """What bounds the step: the largest cause, its part of the step, and the numbers behind it."""
    if not causes or step_ms <= 0:
        return "nothing takes time in this step"
    cause, ms = next(iter(causes.items()))
    part = f"{ms / step_ms:.0%}"
    what, _, where = cause.partition(" of ")
    if cause == "computation":
        return _computation(path, part, step_ms, exposed_ms)
    if what == "bandwidth":
        return _bandwidth(where, links, part, num_collectives)
    if what in ("latency", "messages"):
        thing = "the latency" if what == "latency" else "the time per message"
        return (
            f"{thing} of {where!r} takes {part} of the step, in {_collectives(num_collectives)}; fewer, larger buckets "
            "or groups of fewer ranks would shorten it"
        )
    known = {
        "barriers": f"collectives in shared memory take {part} of the step, most of it in barriers",
        "memory": f"collectives in shared memory take {part} of the step, most of it for bytes",
        "measured": f"collectives with measured times take {part} of the step",
    }
    return known.get(what, f"the {cause} take{'s' if what == 'network' else ''} {part} of the step")


def _collectives(count: float) -> str:
    return "1 collective" if count == 1 else f"{count:g} collectives"


def _computation(path: Sequence[PathItem], part: str, step_ms: float, exposed_ms: float) -> str:
    roles: dict[str, float] = {}
    for item in path:
        if "computation" in item.causes:
            roles[item.kind] = roles.get(item.kind, 0.0) + item.causes["computation"]
    most, most_ms = max(roles.items(), key=lambda entry: entry[1])
    rest = f"; {exposed_ms:.2f} ms of communication are exposed" if exposed_ms > 0 else ""
    return f"computation takes {part} of the step, {most} {most_ms / step_ms:.0%}{rest}"


def _bandwidth(where: str, links: Sequence[LinkUse], part: str, num_collectives: float) -> str:
    kind = "uplink" if "switch" in where else "loopback" if where == "loopback" else "link"
    busiest = max((u for u in links if u.kind == kind), key=lambda u: u.utilization, default=None)
    amount = "" if busiest is None else f": {busiest.megabytes:.1f} MB a step through {busiest.name}"
    name = where if where.startswith(("the ", "loopback")) else f"the link {where!r}"
    return f"the bandwidth of {name} takes {part} of the step{amount}, in {_collectives(num_collectives)}"

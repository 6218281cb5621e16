"""Where the time of a step goes by line of the script, by op and by node: means over the recorded steps and ranks."""

# SPDX-License-Identifier: Apache-2.0
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from argosy.timeline.traces import ROLES, Event, Trace


@dataclass(frozen=True)
class NodeTimes:
    """The time of some nodes, per step and rank."""

    name: str
    role: str
    """Its role, or several."""
    op: str
    source: str
    per_step: float
    """How many events there are in a step."""
    ms: float


def by_source(traces: Sequence[Trace]) -> list[NodeTimes]:
    """By line of the script: a layer, in most scripts."""
    return _grouped(traces, lambda e: (_argument(e, "source") or "unknown",))


def by_op(traces: Sequence[Trace]) -> list[NodeTimes]:
    """By op and role."""
    return _grouped(traces, lambda e: (_argument(e, "op") or str(e["name"]), str(e["cat"])))


def by_node(traces: Sequence[Trace]) -> list[NodeTimes]:
    """By node of the program."""
    return _grouped(traces, lambda e: (str(e["name"]), str(e["cat"])))


def _argument(event: Event, key: str) -> str:
    value = event["args"].get(key)
    return value if isinstance(value, str) else ""


def _grouped(traces: Sequence[Trace], key_of: Callable[[Event], tuple[str, ...]]) -> list[NodeTimes]:
    groups: dict[tuple[str, ...], list[Event]] = defaultdict(list)
    for trace in traces:
        for event in trace.of_kind(*ROLES):
            groups[key_of(event)].append(event)
    steps = sum(1 for trace in traces for _ in trace.of_kind("step"))
    rows = [
        NodeTimes(
            name=key[0],
            role=_joined(str(e["cat"]) for e in events),
            op=_joined(_argument(e, "op") for e in events),
            source=_joined(_argument(e, "source") for e in events),
            per_step=len(events) / steps,
            ms=sum(e["dur"] for e in events) / steps / 1000,
        )
        for key, events in groups.items()
    ]
    return sorted(rows, key=lambda row: -row.ms)


def _joined(texts: Iterable[str], most: int = 3) -> str:
    distinct = list(dict.fromkeys(filter(None, texts)))
    return ", ".join(distinct[:most]) + (" …" if len(distinct) > most else "")

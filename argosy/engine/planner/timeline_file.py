"""A predicted step in the format of the timeline: `python -m argosy.timeline DIR` and Perfetto open it.

One file per class of ranks, as if each class were a rank: rank0.json is the class of rank 0, and its host name says
how many ranks are like it. docs/how-to/timeline.md has the format, engine/runtime/timeline.py writes it for a real job.
"""

# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from argosy.engine.planner.data_files import write_text
from argosy.engine.planner.lowering import Primitive
from argosy.engine.planner.predict_step import Predicted
from argosy.engine.planner.simulate import Actor, ComputeSpan, Started

FORMAT, VERSION = "argosy.timeline", 1
MAX_FILES = 64
_STEP, _COMPUTE, _BLOCKED, _FIRST_LANE = 1, 2, 3, 4
Event = dict[str, Any]


def write_timeline(predicted: Predicted, directory: Path) -> list[Path]:
    """Write the measured steps of the nominal simulation; the paths of the files."""
    directory.mkdir(parents=True, exist_ok=True)
    actors = predicted.nominal.actors[:MAX_FILES]
    paths = []
    for actor in actors:
        paths.append(directory / f"rank{actor.number}.json")
        write_text(paths[-1], json.dumps(trace_of(predicted, actor, len(actors)), separators=(",", ":")))
    return paths


def trace_of(predicted: Predicted, actor: Actor, size: int) -> dict[str, Any]:
    """The content of the file of a class of ranks."""
    classes = predicted.simulation.classes
    ranks = classes.ranks[actor.number]
    number = int(predicted.simulation.placement.host_of[ranks[0]])
    like = f", {len(ranks)} ranks like it" if len(ranks) > 1 else ""
    host = f"predicted host {number}{like}"
    events = list(_events(predicted, actor))
    about = {"format": FORMAT, "version": VERSION, "rank": actor.number, "size": size, "host": host}
    about |= {"pid": 0, "anchors": [[0, 0]], "clock": "predicted", "network": "", "is_predicted": True}
    title = f"rank {int(ranks[0])} ({host})"
    lanes = dict.fromkeys(e["tid"] for e in events)
    names = {_STEP: "step", _COMPUTE: "compute", _BLOCKED: "blocked"}
    names |= {lane: _lane_name(actor, lane) for lane in lanes if lane >= _FIRST_LANE}
    heads = [
        _metadata("process_name", {"name": title}),
        _metadata("process_sort_index", {"sort_index": actor.number}),
    ]
    for lane, name in sorted(names.items()):
        heads.append(_metadata("thread_name", {"name": name}) | {"tid": lane})
        heads.append(_metadata("thread_sort_index", {"sort_index": lane}) | {"tid": lane})
    return {
        "displayTimeUnit": "ms",
        "otherData": about,
        "traceEvents": [e | {"pid": actor.number} for e in (*heads, *events)],
    }


def _events(predicted: Predicted, actor: Actor) -> Iterator[Event]:
    first = predicted.nominal.warm_up
    for step in range(first + 1, len(actor.step_ends) + 1):
        begin = actor.step_ends[step - 2] if step > 1 else 0.0
        about = {"number": step, "program": actor.schedule.trace.name or "predicted"}
        yield _event(f"step {step}", "step", _STEP, begin, actor.step_ends[step - 1], about)
        for span in actor.spans:
            if span.step == step:
                yield from _nodes(actor, span)
        yield from _communicating_nodes(actor, step)
    for started in actor.started:
        if started.step > first and started.ended >= 0:
            yield from _collective(actor, started)


def _nodes(actor: Actor, span: ComputeSpan) -> Iterator[Event]:
    weights = actor.schedule.parts_ms(span.op)
    scale = (span.ended - span.began) / (sum(weights) or 1.0)
    begin = span.began
    for number, weight in zip(span.op.nodes, weights, strict=True):
        end = begin + weight * scale
        if number >= 0:
            yield _node(actor, number, begin, end)
        begin = end


def _node(actor: Actor, number: int, begin: float, end: float) -> Event:
    node = actor.schedule.trace.nodes[number]
    about = {"op": node.op or node.name, "type": "", "source": node.source}
    return _event(node.name, node.role, _COMPUTE, begin, end, about)


def _communicating_nodes(actor: Actor, step: int) -> Iterator[Event]:
    """Nodes that wait, for the time of their waits: their own time is in a span of computation."""
    waiting = {
        op.target.id: op.nodes[0]
        for op in actor.schedule.ops(step)
        if op.kind == "wait" and op.target is not None
    }
    window = (actor.step_ends[step - 2] if step > 1 else 0.0, actor.step_ends[step - 1])
    for started in actor.started:
        for begin, end in started.waits.get(actor.number, ()):
            if window[0] <= begin < window[1] and started.target.id in waiting:
                yield _node(actor, waiting[started.target.id], begin, end)


def _collective(actor: Actor, started: Started) -> Iterator[Event]:
    target = started.target
    if isinstance(target, Primitive):
        name, group = f"{target.kind} {target.collective.what or target.collective.id}", target.group
        nbytes = int(target.nbytes)
    else:
        name, group = f"{target.kind} {target.what or target.id}", "servers"
        nbytes = target.sent_bytes + target.received_bytes
    waits = started.waits.get(actor.number, [])
    joined = started.joined.get(actor.number, started.began)
    key = {"group": group, "number": started.number}
    about = key | {
        "communicator": group.partition("/")[0],
        "bytes": nbytes,
        "queue_us": max(0.0, started.began - joined) * 1e6,
        "wait_us": sum(end - begin for begin, end in waits) * 1e6,
    }
    lane = _FIRST_LANE + _communicators(actor).index(group.partition("/")[0])
    yield _event(name, "collective", lane, started.began, started.ended, about)
    for begin, end in waits:
        yield _event(f"wait for {name}", "wait", _BLOCKED, begin, end, key)


def _communicators(actor: Actor) -> list[str]:
    names = (s.target.communicator if isinstance(s.target, Primitive) else "servers" for s in actor.started)
    return sorted(dict.fromkeys(names))


def _lane_name(actor: Actor, lane: int) -> str:
    return _communicators(actor)[lane - _FIRST_LANE]


def _event(name: str, kind: str, lane: int, begin: float, end: float, about: dict[str, Any]) -> Event:
    times = {"ts": begin * 1e6, "dur": max(0.0, end - begin) * 1e6}
    return {"ph": "X", "name": name, "cat": kind, "tid": lane, **times, "args": about}


def _metadata(name: str, about: dict[str, Any]) -> Event:
    return {"ph": "M", "name": name, "args": about}


def order_of_nodes(actor: Actor, step: int) -> list[str]:
    """The names of the nodes of a step in the order in which the main thread runs them."""
    numbers: dict[int, None] = {}
    for op in actor.schedule.ops(step):
        numbers |= dict.fromkeys(n for n in op.nodes if n >= 0)
    return [actor.schedule.trace.nodes[number].name for number in numbers]

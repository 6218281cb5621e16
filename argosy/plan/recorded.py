"""Step traces from what jobs record: a timeline (fleetrun --timeline DIR), or the profile in a job directory.

read_trace(path)         a step trace, a timeline directory, or rank0.profile.json: the trace of rank 0
from_timeline(traces)    medians over the recorded steps, with their spread; collectives of the program
replayed(traces, step)   one step of every rank, with the measured times of the collectives as they were executed
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from argosy.engine.errors import ConfigError
from argosy.engine.planner.data_files import read_json
from argosy.engine.planner.step_trace import Memory, StepTrace, is_step_trace, step_trace_from
from argosy.plan.recorded_nodes import WAIT, Recorded, RecordedNode, executed, node_of, of_program
from argosy.timeline.traces import ROLES, Event, Key, Trace, read

_STARTING = (
    "all_reduce",
    "all_reduce_fused",
    "all_reduce_hierarchical",
    "reduce",
    "reduce_scatter",
    "broadcast",
    "broadcast_fused",
    "all_gather_shards",
    "gather_rows",
    "begin_updates",
    "end_updates",
    "sync_batch_norm",
    "sync_batch_norm_backward",
)
_SERVER_OPS = (
    "send",
    "push_rows",
    "send_barrier",
    "recv",
    "fetch_barrier",
    "distributed_lookup_table",
    "geo_sync",
)
_AWAITED = ("all_reduce", "all_reduce_fused", "all_reduce_hierarchical", "reduce", "reduce_scatter")
"""Ops whose collective a `wait` waits for; the others wait themselves."""


def read_trace(path: Path) -> StepTrace:
    """The step of rank 0 in a file or directory of any of the known formats."""
    if path.is_dir():
        return from_timeline(read(path))
    content = read_json(path, "trace")
    if is_step_trace(content):
        return step_trace_from(content, str(path))
    if isinstance(content, dict) and {"nodes", "collectives"} <= content.keys():
        return from_profile(content, str(path))
    raise ConfigError(
        f"{path} is no trace; give a step trace, a directory of fleetrun --timeline, or log/metrics/rank0.profile.json"
    )


# --- timelines ----------------------------------------------------------------------------------------


def from_timeline(traces: Sequence[Trace], rank: int = 0) -> StepTrace:
    """The step of one rank: medians over its recorded steps."""
    steps = _Steps(traces[rank])
    nodes = steps.common()
    for node in nodes:
        node.lead_ms = None  # of a single step
    actions, collectives = of_program(nodes)
    taken = [_middle(node.times_ms) for node in nodes]
    before, after, gap = (median(values) for values in zip(*steps.outside(), strict=True))
    return StepTrace(
        tuple(node_of(n, *times, a) for n, times, a in zip(nodes, taken, actions, strict=True)),
        tuple(collectives),
        before_ms=before,
        after_ms=after,
        gap_ms=gap,
        name=str(next(traces[rank].of_kind("step"))["args"].get("program", "")),
    )


def replayed(traces: Sequence[Trace], step: int = 0) -> tuple[list[StepTrace], float]:
    """One recorded step of every rank, with measured collectives; and its measured milliseconds, of the slowest rank.

    The ranks must have one clock: those of one host. A collective takes the time from when the last rank has joined it,
    and the collective before it in its communicator has ended, to the moment when the first rank leaves it.
    """
    clocks = {trace.about["clock"] for trace in traces}
    if len(clocks) > 1:
        raise ConfigError(f"the timelines have {len(clocks)} clocks; replay the ranks of one host")
    recorded = [_Steps(trace) for trace in traces]
    windows = [steps.windows[step] for steps in recorded]
    begin = min(window[0] for window in windows)
    durations, ended = _measured(recorded, step)
    result = []
    for steps, window in zip(recorded, windows, strict=True):
        nodes = steps.nodes_of(step)
        before, after, _ = steps.outside()[step]
        for node, (event, following) in zip(nodes, pairwise(steps.node_events[step]), strict=False):
            node.times_ms[0] += max(0.0, following["ts"] - _end(event)) / 1e3
        for node in nodes:
            node.times_ms[0] += _lag_ms(node, ended)
        ids = list(dict.fromkeys(one.id for node in nodes for verb, one in node.actions if verb == "start"))
        by_id = {one.id: one for node in nodes for _, one in node.actions}
        collectives = tuple(executed(by_id[i], durations[i]) for i in ids)
        known = [[f"{verb} {one.id}" for verb, one in node.actions if one.id in ids] for node in nodes]
        result.append(
            StepTrace(
                tuple(node_of(n, n.times_ms[0], 0.0, a) for n, a in zip(nodes, known, strict=True)),
                collectives,
                before_ms=before + (window[0] - begin) / 1e3,
                after_ms=after,
            )
        )
    return result, (max(window[1] for window in windows) - begin) / 1e3


def _measured(recorded: "list[_Steps]", step: int) -> tuple[dict[str, float], dict[str, float]]:
    """By id, the milliseconds of each collective of a step once all ranks have joined it, and when the first rank left.

    A rank may leave later than the first one, because it had no core: that is its own time, not the collective's.
    """
    joined: dict[str, float] = {}
    ended: dict[str, float] = {}
    groups: dict[str, str] = {}
    for steps in recorded:
        for one, event in steps.collectives_of(step):
            waits = [w["ts"] for w in steps.waits.get(_key(event), [])]
            in_wait = bool(waits) and waits[0] <= event["ts"]
            # In shared memory a rank joins in its wait; over sockets when the collective is started.
            start = _started(event)
            arrived = event["ts"] if in_wait and waits[0] > start + 1e-3 else start
            joined[one.id] = max(joined.get(one.id, 0.0), arrived)
            ended[one.id] = min(ended.get(one.id, math.inf), _end(event))
            groups[one.id] = one.group.partition("/")[0]
    last_end: dict[str, float] = {}
    durations = {}
    for number in sorted(joined, key=lambda i: ended[i]):
        began = max(joined[number], last_end.get(groups[number], 0.0))
        durations[number] = max(0.0, ended[number] - began) / 1e3
        last_end[groups[number]] = ended[number]
    return durations, ended


def _lag_ms(node: RecordedNode, ended: dict[str, float]) -> float:
    """How much later than the first rank this one left the collectives that the node waited for."""
    waits = ((begin, end, ended[one]) for one, begin, end in node.waits if one in ended)
    return sum(max(0.0, end - max(begin, first)) for begin, end, first in waits) / 1e3


class _Steps:
    """The steps of one rank's timeline."""

    def __init__(self, trace: Trace) -> None:
        self.windows = [(e["ts"], _end(e)) for e in trace.of_kind("step")]
        events = sorted(trace.of_kind(*ROLES), key=lambda e: (e["ts"], _end(e)))
        self.node_events = [[e for e in events if w[0] <= e["ts"] < w[1]] for w in self.windows]
        self.waits: dict[Key, list[Event]] = {}
        for event in sorted(trace.of_kind("wait"), key=lambda e: float(e["ts"])):
            if "group" in event["args"]:
                self.waits.setdefault(_key(event), []).append(event)
        collectives = sorted(trace.of_kind("collective"), key=_started)
        self._by_step = [[e for e in collectives if w[0] <= _started(e) < w[1]] for w in self.windows]
        self._recorded: dict[Key, Recorded] = {}
        for inside in self._by_step:
            counts: dict[str, int] = {}
            for event in inside:
                group = event["args"]["group"]
                counts[group] = counts.get(group, 0) + 1
                about = (event["name"], group, event["args"]["bytes"])
                self._recorded[_key(event)] = Recorded(f"{group}#{counts[group]}", *about)

    def collectives_of(self, step: int) -> list[tuple[Recorded, Event]]:
        return [(self._recorded[_key(e)], e) for e in self._by_step[step]]

    def nodes_of(self, step: int) -> list[RecordedNode]:
        """The nodes of a step, with their actions in the order of time."""
        timed: list[tuple[float, int, str, Key]] = [
            (_started(e), 0, "start", _key(e)) for e in self._by_step[step]
        ]
        window = self.windows[step]
        for key, waits in self.waits.items():
            if key in self._recorded:
                inside = (e["ts"] for e in waits if window[0] <= e["ts"] < window[1])
                timed += [(begin, 1, "wait", key) for begin in inside]
        timed.sort()
        place, nodes = 0, []
        for event in self.node_events[step]:
            about = event["args"]
            node = RecordedNode(event["name"], about.get("op", ""), event["cat"], about.get("source", ""), [])
            while place < len(timed) and timed[place][0] < _end(event):
                at, _, verb, key = timed[place]
                if not node.actions:
                    node.lead_ms = max(0.0, at - event["ts"]) / 1e3
                node.actions.append((verb, self._recorded[key]))
                if verb == "wait":
                    node.waits += [
                        (self._recorded[key].id, w["ts"], _end(w)) for w in self.waits[key] if w["ts"] == at
                    ]
                place += 1
            node.times_ms = [(event["dur"] - sum(end - begin for _, begin, end in node.waits)) / 1e3]
            nodes.append(node)
        return nodes

    def common(self) -> list[RecordedNode]:
        """The nodes of the last step, with the times of all steps that ran the same nodes."""
        steps = [self.nodes_of(step) for step in range(len(self.windows))]
        names = [node.name for node in steps[-1]]
        same = [nodes for nodes in steps if [node.name for node in nodes] == names]
        for place, node in enumerate(steps[-1]):
            node.times_ms = [nodes[place].times_ms[0] for nodes in same]
        return steps[-1]

    def outside(self) -> list[tuple[float, float, float]]:
        """For each step the milliseconds before the first node, after the last, and between two nodes on average."""
        result = []
        for window, nodes in zip(self.windows, self.node_events, strict=True):
            between = [max(0.0, b["ts"] - _end(a)) for a, b in pairwise(nodes)]
            gap = sum(between) / len(nodes) if nodes else 0.0
            first, last = (nodes[0]["ts"], _end(nodes[-1])) if nodes else (window[1], window[1])
            result.append(((first - window[0]) / 1e3, max(0.0, window[1] - last) / 1e3, gap / 1e3))
        return result


def _key(event: Event) -> Key:
    return event["args"]["group"], event["args"]["number"]


def _started(event: Event) -> float:
    return float(event["ts"] - event["args"]["queue_us"])


def _end(event: Event) -> float:
    return float(event["ts"] + event["dur"])


def _middle(values: list[float]) -> tuple[float, float]:
    """Median, and a standard deviation that outliers do not change: 1.4826 times the median deviation."""
    middle = median(values)
    spread = 1.4826 * float(np.median(np.abs(np.array(values) - middle)))
    return middle, spread


# --- profiles -----------------------------------------------------------------------------------------


def from_profile(content: dict[str, Any], where: str) -> StepTrace:
    """The step of a rank's profile: rank0.profile.json of a job directory. It has no spread."""
    try:
        nodes = [_profile_node(entry) for entry in content["nodes"]]
        queue = [
            Recorded(f"{c['group']}#{i + 1}", c["name"], c["group"], int(c["bytes"]))
            for i, c in enumerate(content["collectives"])
        ]
        types = [str(entry["kind"]) for entry in content["nodes"]]
        memory = content.get("memory") or {}
        peak = Memory(int(memory["peak_bytes"]), memory.get("breakdown")) if "peak_bytes" in memory else None
    except (KeyError, TypeError, ValueError) as e:
        raise ConfigError(
            f"{where} is no profile of a rank ({type(e).__name__}: {e}); let the job write it again"
        ) from e
    if used := sorted({node.op for node in nodes} & set(_SERVER_OPS)):
        raise ConfigError(
            f"{where} is of a worker with parameter servers ({', '.join(used)}), and a profile does not have the bytes "
            "of its requests; write a step trace with requests"
        )
    rest = _assign(nodes, types, queue)
    if rest:
        raise ConfigError(
            f"{where}: {rest[0].name!r} and {len(rest) - 1} more collectives belong to no node; record a timeline "
            "instead"
        )
    actions, collectives = of_program(nodes)
    return StepTrace(
        tuple(node_of(n, n.times_ms[0], 0.0, a) for n, a in zip(nodes, actions, strict=True)),
        tuple(collectives),
        memory=peak,
        name=str(content.get("program", "")),
    )


def _profile_node(entry: dict[str, Any]) -> RecordedNode:
    name, op, role, source = (str(entry[key]) for key in ("name", "op", "role", "source"))
    return RecordedNode(name, op, role, source, [float(entry["ms"])])


def _assign(nodes: list[RecordedNode], types: list[str], collectives: list[Recorded]) -> list[Recorded]:
    """Give each node the collectives that it started and waits for; those that are left belong to no node.

    A profile has no times of single collectives, but their order. A node started as many in a row as have the same
    tensors; a `wait` waits for the first start of its own type that has no wait yet.
    """
    place = 0
    pending: list[tuple[str, list[Recorded]]] = []
    gathers: list[list[Recorded]] = []
    for node, kind in zip(nodes, types, strict=True):
        if node.op in _STARTING and place < len(collectives):
            first = place
            while place < len(collectives) and _belongs(
                node, collectives[first], collectives[place], place - first
            ):
                place += 1
            started = collectives[first:place]
            node.actions = [("start", one) for one in started]
            if node.op in _AWAITED:
                pending.append((kind, started))
            elif node.op == "all_gather_shards" and any(one.nbytes for one in started):
                gathers.append(started)
            else:
                node.actions = [action for one in started for action in (("start", one), ("wait", one))]
        elif node.op == WAIT and pending:
            found = next((p for p in pending if p[0] == kind), pending[0])
            pending.remove(found)
            node.actions = [("wait", one) for one in found[1]]
            if place < len(collectives) and collectives[place].kind == "barrier":
                place += collectives[place].what == found[1][0].what
    awaits = [node for node in nodes if node.op == "await_gathers"]
    for node, started in zip(awaits, gathers, strict=False):
        node.actions = [("wait", one) for one in started]
    return collectives[place:]


def _belongs(node: RecordedNode, first: Recorded, one: Recorded, number: int) -> bool:
    if one.what != first.what and not (node.op == "gather_rows" and one.what.startswith("gather_rows")):
        return False
    if node.op == "begin_updates":
        return one.kind == "all_reduce"
    if node.op == "end_updates":
        return number == 0
    return True

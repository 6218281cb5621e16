"""What one rank does in a training step: its nodes in order, and the communication that they start and wait for.

    nodes         name, role, milliseconds and their spread; actions, executed in order:
                      "start bucket0"      the main thread starts it and continues
                      "wait bucket0"       the main thread blocks until it is complete, or runs it (shared memory)
    collectives   id, kind, bytes, process group
    requests      to parameter servers: id, kind, bytes
    periods       nodes that run only every k-th step: period "merge", or "!merge" in the other steps

A wait before the start of the same id, in the order of the nodes, waits for the one that the step before started: the
all-gathers of sharded parameters. A file is JSON with a version.
"""

# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from argosy.engine.planner.data_files import (
    check,
    from_data,
    is_time,
    read_json,
    to_data,
    write_text,
)

FORMAT, VERSION = "argosy.step_trace", 1
ROLES = ("forward", "backward", "optimize", "communicate")

CollectiveKind = Literal[
    "all_reduce",
    "all_reduce_hierarchical",
    "reduce_scatter",
    "all_gather_shards",
    "all_gather",
    "reduce",
    "broadcast",
    "barrier",
    "host_barrier",
]
RequestKind = Literal["push", "barrier", "pull", "lookup"]


@dataclass(frozen=True)
class Collective:
    """A collective of the program, as its node starts it; `lowering` says what the runtime makes of it."""

    id: str
    kind: CollectiveKind
    """host_barrier: of divided updates, which need all ranks on one host. all_gather_shards: one broadcast per rank."""
    nbytes: int
    """The payload on one rank: of the whole bucket, also for reduce_scatter and all_gather_shards; of all_gather,
    what one rank contributes."""
    group: str = "dp"
    """dp, dp.1: all ranks, first and second communicator; dp/intra2, dp/inter2, dp/leaders2: collective/group.py."""
    what: str = ""
    """The tensors, for reports."""
    is_flat: bool = True
    """The tensor is in a flat buffer, which ranks of a host share; else it is copied through staging areas."""
    block: int = 0
    """all_reduce_hierarchical: ranks of a block; 0: those of a host. reduce_scatter, all_gather_shards: the sharding
    degree; 0: all ranks."""
    by_leaders: bool = False
    algorithm: Literal["ring", "halving_doubling"] = "ring"
    """Of an all-reduce over sockets. torch's gloo uses a ring for every size."""
    ms: float | None = None
    """Measured: from the moment when all ranks have joined to the end. It replaces the model's time."""

    def __post_init__(self) -> None:
        check(bool(self.id), "a collective without id; give each one an id of its own")
        check(self.nbytes >= 0, f"collective {self.id}: nbytes is {self.nbytes}; use 0 or more")
        check(self.block >= 0, f"collective {self.id}: block is {self.block}; use 0 or the number of ranks")
        check(
            self.ms is None or is_time(self.ms),
            f"collective {self.id}: ms is {self.ms}; use a duration, or omit it",
        )

    @property
    def communicator(self) -> str:
        return self.group.partition("/")[0]


@dataclass(frozen=True)
class ServerRequest:
    """A request of a worker to all parameter servers, which have an equal part of it each."""

    id: str
    kind: RequestKind
    """push: gradients, or rows; barrier: the step's pushes are complete; pull: values; lookup: rows of a table."""
    sent_bytes: int = 0
    received_bytes: int = 0
    what: str = ""
    service_us: float | None = None
    """A request in its thread of a server, if it was measured; None: that of the setup."""
    service_s_per_gb: float | None = None
    """Of the bytes that are sent and received; None: that of the setup."""

    def __post_init__(self) -> None:
        check(bool(self.id), "a request without id; give each one an id of its own")
        sizes = (self.sent_bytes, self.received_bytes)
        check(min(sizes) >= 0, f"request {self.id}: {min(sizes)} bytes; use 0 or more")
        for key in ("service_us", "service_s_per_gb"):
            value = getattr(self, key)
            check(
                value is None or is_time(value),
                f"request {self.id}: {key} is {value}; use 0 or more, or none",
            )


@dataclass(frozen=True)
class Node:
    """One line of the compiled step."""

    name: str
    ms: float
    """The time of the main thread, without what it waits for communication."""
    op: str = ""
    role: str = "forward"
    spread_ms: float = 0.0
    """The standard deviation of `ms` from step to step."""
    actions: tuple[str, ...] = ()
    """"start ID" and "wait ID", in order."""
    lead_ms: float | None = None
    """The part of `ms` before the actions; None: all of it, or nothing if the first action is a wait."""
    period: str = ""
    """The node runs when this period is due; "!name": when it is not; "": in every step."""
    source: str = ""

    def __post_init__(self) -> None:
        check(is_time(self.ms), f"node {self.name}: ms is {self.ms}; use a duration of 0 or more")
        check(is_time(self.spread_ms), f"node {self.name}: spread_ms is {self.spread_ms}; use 0 or more")
        check(
            self.lead_ms is None or 0 <= self.lead_ms <= self.ms,
            f"node {self.name}: lead_ms is {self.lead_ms}; use 0 to ms, which is {self.ms}",
        )
        check(self.role in ROLES, f"node {self.name}: role is {self.role!r}; use one of {', '.join(ROLES)}")
        for action in self.actions:
            verb, _, target = action.partition(" ")
            check(
                verb in ("start", "wait") and bool(target),
                f'node {self.name}: action {action!r}; use "start ID" or "wait ID"',
            )

    @property
    def lead(self) -> float:
        """The part of `ms` before the actions, from 0 to 1."""
        if self.lead_ms is not None:
            return self.lead_ms / self.ms if self.ms else 0.0
        return 0.0 if self.actions and self.actions[0].startswith("wait ") else 1.0

    def scaled(self, factor: float) -> "Node":
        """The node on a rank that takes `factor` times as long."""
        lead_ms = None if self.lead_ms is None else self.lead_ms * factor
        return replace(self, ms=self.ms * factor, spread_ms=self.spread_ms * factor, lead_ms=lead_ms)


@dataclass(frozen=True)
class Memory:
    """Peak memory of a rank, as the program's liveness analysis gives it."""

    peak_bytes: int
    breakdown: dict[str, int] | None = None


@dataclass(frozen=True)
class StepTrace:
    """A training step of one rank."""

    nodes: tuple[Node, ...]
    collectives: tuple[Collective, ...] = ()
    requests: tuple[ServerRequest, ...] = ()
    periods: dict[str, int] | None = None
    """By name: the nodes of the period run in every k-th step."""
    before_ms: float = 0.0
    """The executor's time before the first node: feeds."""
    after_ms: float = 0.0
    """After the last node: fetches."""
    gap_ms: float = 0.0
    """Between two nodes."""
    memory: Memory | None = None
    examples: int = 0
    """The batch of a rank; 0: unknown."""
    name: str = ""

    def __post_init__(self) -> None:
        check(bool(self.nodes), "a step trace without nodes; record a training step")
        times = {"before_ms": self.before_ms, "after_ms": self.after_ms, "gap_ms": self.gap_ms}
        for key, value in times.items():
            check(is_time(value), f"step trace: {key} is {value}; use a duration of 0 or more")
        for name, every in (self.periods or {}).items():
            check(every >= 1, f"period {name}: every {every} steps; use 1 or more")
        self._check_actions()

    def _check_actions(self) -> None:
        ids = [c.id for c in self.collectives] + [r.id for r in self.requests]
        known = set(ids)
        check(
            len(known) == len(ids), f"step trace: two collectives have one id; all: {', '.join(sorted(ids))}"
        )
        started: dict[str, str] = {}
        waited = set()
        for node in self.nodes:
            period = node.period.removeprefix("!")
            check(
                not period or period in (self.periods or {}),
                f"node {node.name}: unknown period {period!r}; declare it in periods",
            )
            for action in node.actions:
                verb, _, target = action.partition(" ")
                check(
                    target in known,
                    f"node {node.name}: {action!r} names no collective or request of the trace",
                )
                if verb == "start":
                    check(
                        target not in started, f"{target} is started by {started.get(target)} and {node.name}"
                    )
                    started[target] = node.name
                waited |= {target} if verb == "wait" else set()
        for missing in sorted(waited - started.keys()):
            check(False, f"{missing} is waited for, but no node starts it; add a start")

    @property
    def busy_ms(self) -> float:
        """The time of the main thread in a step in which all nodes run, without waits."""
        gaps = self.gap_ms * len(self.nodes)
        return self.before_ms + self.after_ms + gaps + sum(node.ms for node in self.nodes)

    def scaled(self, factor: float) -> "StepTrace":
        """The trace of a rank whose computation takes `factor` times as long."""
        nodes = tuple(node.scaled(factor) for node in self.nodes)
        rest = {key: getattr(self, key) * factor for key in ("before_ms", "after_ms", "gap_ms")}
        return replace(self, nodes=nodes, **rest)

    def to_json(self) -> str:
        """The content of a file."""
        return json.dumps({"format": FORMAT, **to_data(self, VERSION)}, indent=1)

    def write(self, path: Path) -> None:
        """Write the file atomically."""
        write_text(path, self.to_json())


def is_step_trace(content: Any) -> bool:
    """True if this content of a JSON file says that it is a step trace."""
    return isinstance(content, dict) and content.get("format") == FORMAT


def step_trace_from(content: Any, where: str) -> StepTrace:
    """The trace of a file's content."""
    check(is_step_trace(content), f"{where} has no format {FORMAT!r}; give a step trace")
    return from_data(StepTrace, {k: v for k, v in content.items() if k != "format"}, where, VERSION)


def read_step_trace(path: Path) -> StepTrace:
    """Read a file that `StepTrace.write` wrote, or a person."""
    return step_trace_from(read_json(path, "step trace"), str(path))

"""Collectives as they were executed, node by node, and back to those of the program.

    recorded      all_reduce_hierarchical   start and wait reduce_scatter dp/intra2, start all_reduce dp/inter2
                  wait                      wait all_reduce dp/inter2, start and wait barrier dp/intra2
    program       all_reduce_hierarchical   start all_reduce_hierarchical, in blocks of the ranks of a host
                  wait                      wait for it

What was executed depends on the hosts of the recorded job; the collectives of the program do not, so they can be
simulated on other hosts.
"""

# SPDX-License-Identifier: Apache-2.0
import re
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from argosy.engine.errors import ConfigError
from argosy.engine.planner.step_trace import Collective, CollectiveKind, Node

_BLOCK = re.compile(r"/(?:intra|inter|leaders)(\d+)")
_DIVIDED = ("begin_updates", "end_updates")
_PARTS = {"all_reduce_hierarchical": "all_reduce_hierarchical", "reduce_scatter": "reduce_scatter"}
WAIT = "wait"


@dataclass
class Recorded:
    """A collective as one rank executed it."""

    id: str
    name: str
    """all_reduce fc_0.w_0@GRAD … fc_0.b_0@GRAD"""
    group: str
    nbytes: int

    @property
    def kind(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def what(self) -> str:
        return self.name.partition(" ")[2]


@dataclass
class RecordedNode:
    """A node with what it started and waited for."""

    name: str
    op: str
    role: str
    source: str
    times_ms: list[float]
    """In each recorded step, without waits."""
    actions: list[tuple[str, Recorded]] = field(default_factory=list)
    waits: list[tuple[str, float, float]] = field(default_factory=list)
    """Id, begin and end in microseconds of its waits, in the last recorded step."""
    lead_ms: float | None = None
    """Before the first action, in the last recorded step."""


def executed(one: Recorded, ms: float | None = None) -> Collective:
    """The collective as it was executed."""
    kind = one.kind
    if kind not in get_args(CollectiveKind):
        raise ConfigError(f"{one.name!r}: unknown collective {kind!r}; record with this version of Argosy")
    return Collective(one.id, cast("CollectiveKind", kind), one.nbytes, one.group, one.what, ms=ms)


def of_program(nodes: list[RecordedNode]) -> tuple[list[list[str]], list[Collective]]:
    """The actions of each node, and the collectives, of the program that was recorded."""
    logical_of: dict[str, str] = {}
    collectives: list[Collective] = []
    for node in nodes:
        starts = [one for verb, one in node.actions if verb == "start"]
        if not starts:
            continue
        if node.op in _PARTS:
            collectives.append(_whole(node, starts))
            logical_of |= {one.id: starts[0].id for one in starts}
        elif node.op == "all_gather_shards":
            collectives.append(_gather(starts))
            logical_of |= {one.id: starts[0].id for one in starts}
        elif node.op in _DIVIDED:
            collectives += [_host_barrier(one) for one in starts]
            logical_of |= {one.id: one.id for one in starts}
        elif node.op != WAIT:  # a wait starts barriers of what it waits for
            collectives += [_as_is(node, one) for one in starts]
            logical_of |= {one.id: one.id for one in starts}
    return [_actions(node, logical_of) for node in nodes], collectives


def _actions(node: RecordedNode, logical_of: dict[str, str]) -> list[str]:
    is_one = node.op in _PARTS
    actions: dict[str, None] = {}
    started = {one.id for verb, one in node.actions if verb == "start"}
    for verb, one in node.actions:
        if one.id not in logical_of or (is_one and verb == "wait" and one.id in started):
            continue
        actions[f"{verb} {logical_of[one.id]}"] = None
    return list(actions)


def _as_is(node: RecordedNode, one: Recorded) -> Collective:
    collective = executed(one)
    values: dict[str, Any] = {**collective.__dict__, "is_flat": node.op == "all_reduce_fused"}
    return Collective(**values)


def _host_barrier(one: Recorded) -> Collective:
    return Collective(one.id, "host_barrier", 0, one.group, one.what)


def _whole(node: RecordedNode, starts: list[Recorded]) -> Collective:
    """One collective of the parts that a node started."""
    first = starts[0]
    inside = [one for one in starts if one.kind in ("reduce_scatter", "reduce") and "/inter" not in one.group]
    nbytes = sum(one.nbytes for one in inside) or sum(one.nbytes for one in starts)
    by_leaders = any("/leaders" in one.group for one in starts)
    group = first.group.partition("/")[0]
    is_sharded = node.op == "reduce_scatter"
    block = _BLOCK.search(first.group) if is_sharded else None
    kind = cast("CollectiveKind", _PARTS[node.op])
    return Collective(
        first.id, kind, nbytes, group, first.what, block=int(block[1]) if block else 0, by_leaders=by_leaders
    )


def _gather(starts: list[Recorded]) -> Collective:
    first, nbytes = starts[0], sum(one.nbytes for one in starts)
    if not nbytes:  # the ranks of a host share the weights: how many bytes others would need is unknown
        return _host_barrier(first)
    block = _BLOCK.search(first.group)
    group = first.group.partition("/")[0]
    return Collective(
        first.id, "all_gather_shards", nbytes, group, first.what, block=int(block[1]) if block else 0
    )


def node_of(recorded: RecordedNode, ms: float, spread_ms: float, actions: list[str]) -> Node:
    """A node of a step trace."""
    role = recorded.role if recorded.role in ("forward", "backward", "communicate") else "optimize"
    ms = max(ms, 0.0)
    lead_ms = None if recorded.lead_ms is None else min(max(recorded.lead_ms, 0.0), ms)
    return Node(
        recorded.name, ms, recorded.op, role, spread_ms, tuple(actions), lead_ms, source=recorded.source
    )

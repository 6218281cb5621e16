"""From a collective of the program to those that the runtime executes on this placement of ranks.

    all_reduce                 ranks of one host: in shared memory, inside the wait; else in the communicator's thread
    all_reduce_hierarchical    start: for each 8 MiB: reduce-scatter inside the host, start all-reduce between hosts
                               wait: for these all-reduces, then a barrier inside the host
    reduce_scatter             one host: inside the wait; with replicas: sum at the start, all-reduce of shards of 4 MiB
    all_gather_shards          one host: a barrier, because weights are shared; else a broadcast from each rank

As collective/hierarchy.py, collective/sharding.py and ops/sharding.py do it. A collective with a measured time is not
lowered: it was recorded as it was executed.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import Literal

from argosy.engine.errors import ConfigError
from argosy.engine.planner.groups import Placement, groups_of
from argosy.engine.planner.step_trace import Collective

_HIERARCHY_CHUNK = 1 << 23
_SHARD_CHUNK = 1 << 22


@dataclass(frozen=True)
class Primitive:
    """A collective of one process group, as the runtime executes it."""

    id: str
    kind: str
    group: str
    nbytes: float
    transport: Literal["shm", "network"]
    collective: Collective
    """Of the program."""
    ms: float | None = None

    @property
    def communicator(self) -> str:
        return self.group.partition("/")[0]


Action = tuple[Literal["start", "wait"], Primitive]


@dataclass(frozen=True)
class Lowered:
    """What the main thread does when the node starts the collective, and when another waits for it."""

    start: tuple[Action, ...]
    wait: tuple[Action, ...]


def lower(collective: Collective, placement: Placement) -> Lowered:
    """The primitives of a collective; none if its group has one rank."""
    return _Lowering(collective, placement).run()


class _Lowering:
    def __init__(self, collective: Collective, placement: Placement) -> None:
        self.collective, self.placement = collective, placement
        self._count = 0

    def run(self) -> Lowered:
        one = self.collective
        if one.kind == "host_barrier" and not self.placement.uses_shared_memory(one.group):
            raise ConfigError(
                f"{one.id} is a barrier of updates that the ranks of one host divide, and this topology has "
                f"{self.placement.topology.num_hosts} hosts, or no shared memory; record the trace with "
                "strategy.build_strategy.divide_updates = False"
            )
        if one.ms is not None:
            return self._pair(self._primitive(one.kind, one.group, one.nbytes, one.ms))
        if one.kind == "all_reduce_hierarchical":
            return self._hierarchical()
        if one.kind == "reduce_scatter" and "/" not in one.group:
            return self._reduce_scatter()
        if one.kind == "all_gather_shards":
            return self._all_gather_shards()
        return self._pair(self._primitive(one.kind, one.group, one.nbytes))

    def _primitive(self, kind: str, group: str, nbytes: float, ms: float | None = None) -> Primitive | None:
        if groups_of(group, self.placement.size).shape[1] == 1:
            return None
        is_shared = self.placement.uses_shared_memory(group)
        if kind == "reduce_scatter" and not is_shared:
            kind = "reduce_each"
        self._count += 1
        return Primitive(
            f"{self.collective.id}.{self._count}",
            kind,
            group,
            nbytes,
            "shm" if is_shared else "network",
            self.collective,
            ms,
        )

    def _pair(self, primitive: Primitive | None) -> Lowered:
        return Lowered(_start(primitive), _wait(primitive))

    def _hierarchical(self) -> Lowered:
        one, name = self.collective, self.collective.communicator
        block = self.placement.block(one.block)
        if block in (1, self.placement.size):
            return self._pair(self._primitive("all_reduce", name, one.nbytes))
        intra, inter = f"{name}/intra{block}", f"{name}/{'leaders' if one.by_leaders else 'inter'}{block}"
        if not self.placement.uses_shared_memory(intra):
            return self._hierarchical_by_sockets(intra, inter, block)
        start: list[Action] = []
        wait: list[Action] = []
        for nbytes in _chunks(one.nbytes, _HIERARCHY_CHUNK):
            start += _run(self._primitive("reduce_scatter", intra, nbytes))
            if one.by_leaders:
                start += _run(self._primitive("barrier", intra, 0))
            part = self._primitive("all_reduce", inter, nbytes if one.by_leaders else nbytes / block)
            start += _start(part)
            wait += _wait(part)
        return Lowered(tuple(start), (*wait, *_run(self._primitive("barrier", intra, 0))))

    def _hierarchical_by_sockets(self, intra: str, inter: str, block: int) -> Lowered:
        nbytes, by_leaders = self.collective.nbytes, self.collective.by_leaders
        kinds = ("reduce", "broadcast") if by_leaders else ("reduce_each", "broadcast_each")
        first = _run(self._primitive(kinds[0], intra, nbytes))
        part = self._primitive("all_reduce", inter, nbytes if by_leaders else nbytes / block)
        last = _run(self._primitive(kinds[1], intra, nbytes))
        return Lowered((*first, *_start(part)), (*_wait(part), *last))

    def _reduce_scatter(self) -> Lowered:
        one, name, size = self.collective, self.collective.communicator, self.placement.size
        degree = one.block or size
        intra = name if degree == size else f"{name}/intra{degree}"
        first = self._primitive("reduce_scatter", intra, one.nbytes)
        if degree == size:
            return self._pair(first)
        inter = f"{name}/inter{degree}"
        if not self.placement.uses_shared_memory(intra):
            part = self._primitive("all_reduce", inter, one.nbytes / degree)
            return Lowered((*_run(first), *_start(part)), _wait(part))
        start: list[Action] = []
        wait: list[Action] = []
        for number, nbytes in enumerate(_chunks(one.nbytes / degree, _SHARD_CHUNK)):
            kind = "sum" if number else "reduce_scatter"
            start += _run(self._primitive(kind, intra, nbytes * degree))
            part = self._primitive("all_reduce", inter, nbytes)
            start += _start(part)
            wait += _wait(part)
        return Lowered(tuple(start), (*wait, *_run(self._primitive("barrier", intra, 0))))

    def _all_gather_shards(self) -> Lowered:
        one, name, size = self.collective, self.collective.communicator, self.placement.size
        degree = one.block or size
        intra = name if degree == size else f"{name}/intra{degree}"
        if self.placement.uses_shared_memory(intra):
            return Lowered(_run(self._primitive("barrier", intra, 0)), ())
        return self._pair(self._primitive("broadcast_each", intra, one.nbytes))


def _chunks(nbytes: float, chunk: int) -> list[float]:
    count = max(1, -int(-nbytes // chunk))
    return [min(chunk, nbytes - i * chunk) for i in range(count)]


def _start(primitive: Primitive | None) -> tuple[Action, ...]:
    return () if primitive is None else (("start", primitive),)


def _wait(primitive: Primitive | None) -> tuple[Action, ...]:
    return () if primitive is None else (("wait", primitive),)


def _run(primitive: Primitive | None) -> tuple[Action, ...]:
    return (*_start(primitive), *_wait(primitive))

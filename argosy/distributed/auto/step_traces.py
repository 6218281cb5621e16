"""The step trace of a program that was never run: its compiled nodes, with times that were measured on another one.

    node of the compiled program                 time
    forward, backward, update of one parameter   of the node with the same name and op in the measured program
    fused update                                 of the measured updates, by the bytes of its parameters; with the
                                                 gradients of n ranks to sum, by the words that it reads and writes
    mm_into_bucket                               of the product that it replaces
    copy_into_bucket                             a copy of its bytes
    casts for the wire                           a copy of their bytes
    views and starts of collectives              of a call

A node with none of these is an error: a prediction without its time would be too low.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any, cast

import torch
from torch import fx

from argosy.distributed.auto.node_times import NodeTime, NodeTimes
from argosy.engine.errors import ConfigError
from argosy.engine.ops import collectives as ops
from argosy.engine.ops import gradient_buckets, host_updates, sharding
from argosy.engine.ops.updates import FUSED
from argosy.engine.planner.step_trace import ROLES, Collective, Memory, Node, StepTrace
from argosy.engine.runtime.compile import Compiled, Label

CALL_MS = 0.004
"""A call of an op that computes nothing: a view, the start of a collective. Measured: 2 to 6 us."""
_UNMATCHED = 0.02
"""The part of a step's nodes, by number, that may have times of other nodes with the same op."""
UPDATES = frozenset((*FUSED, *FUSED.values()))
_VIEWS = (sharding.shard_rows, sharding.shard_gradient, sharding.await_gathers)
_SMALL_BYTES = 4096
_RANK_GRADIENTS = (host_updates.rank_gradients, sharding.shard_gradient)


def step_trace(
    compiled: Compiled,
    times: NodeTimes,
    ranks_of_host: int,
    is_one_host: bool,
    memory: Memory | None = None,
    name: str = "",
) -> StepTrace:
    """The trace of a compiled program of one rank, of which `ranks_of_host` share a host's memory."""
    builder = _Builder(compiled, times, ranks_of_host, is_one_host)
    nodes = tuple(builder.node(node) for node in compiled.step.nodes)
    if len(builder.guessed) > max(2, _UNMATCHED * len(nodes)):
        raise ConfigError(
            f"{len(builder.guessed)} of {len(nodes)} nodes have no measured time, for example "
            f"{', '.join(builder.guessed[:3])}; measure the same program with the same kernels"
        )
    outside = {key: getattr(times, key) for key in ("before_ms", "after_ms", "gap_ms", "examples")}
    return StepTrace(nodes, tuple(builder.collectives), memory=memory, name=name, **outside)


@dataclass
class _Builder:
    compiled: Compiled
    times: NodeTimes
    ranks_of_host: int
    is_one_host: bool
    collectives: list[Collective] = field(default_factory=list)
    guessed: list[str] = field(default_factory=list)
    ids: dict[fx.Node, str] = field(default_factory=dict)
    """The collective that a node started."""

    def __post_init__(self) -> None:
        updates = [n for n in self.times.nodes if n.role == "optimize"]
        self.update_ms = sum(n.ms for n in updates)
        self.by_kind = _grouped(self.times.nodes, lambda n: (n.op.removesuffix("_"), n.kind, n.source))
        self.by_op = _grouped(self.times.nodes, lambda n: (n.op.removesuffix("_"), n.kind))

    def node(self, node: fx.Node) -> Node:
        label = self.compiled.label(node)
        ms, spread_ms = self._time(node, label)
        role = label.role if label.role in ROLES else "optimize"
        actions = self._actions(node)
        return Node(label.name, ms, label.op, role, spread_ms, actions, source=label.source)

    def _time(self, node: fx.Node, label: Label) -> tuple[float, float]:
        known = self.times.by_label.get((label.name, label.op))
        if node.target in UPDATES and (known is None or node.target in FUSED.values()):
            return self._update(node)
        if known is not None:
            return known.ms, known.spread_ms
        if node.target in _VIEWS or _is_small(node):
            return CALL_MS, 0.0
        if label.role == "communicate" and node.target is not gradient_buckets.mm_into_bucket:
            is_copy = node.target is gradient_buckets.copy_into_bucket or _is_aten(node)  # aten: casts
            return CALL_MS + (self.times.copy_ms(_nbytes(node)) if is_copy else 0.0), 0.0
        op = "mm" if node.target is gradient_buckets.mm_into_bucket else label.op.removesuffix("_")
        for table, key in ((self.by_kind, (op, label.kind, label.source)), (self.by_op, (op, label.kind))):
            if key in table:
                return table[key]
        self.guessed.append(f"{label.name} = {label.op} {label.kind}")
        return CALL_MS, 0.0

    def _update(self, node: fx.Node) -> tuple[float, float]:
        """The time of an update: of all measured updates, by its part of their bytes."""
        parameters = node.args[0] if isinstance(node.args[0], list | tuple) else [node.args[0]]
        gradients = node.args[1] if isinstance(node.args[1], list | tuple) else [node.args[1]]
        words = 2 * num_mutated(node)
        total = 0.0
        for parameter, gradient in zip(parameters, gradients, strict=False):
            part = _nbytes(cast("fx.Node", parameter)) / max(self.times.update_bytes, 1)
            target = cast("fx.Node", gradient).target
            if (
                target in _RANK_GRADIENTS and self.is_one_host
            ):  # the update sums the gradients of the host's ranks
                part *= (words + self.ranks_of_host) / (words + 1)
            if target is host_updates.rank_gradients:
                part /= self.ranks_of_host
            total += part
        return self.update_ms * total + CALL_MS, 0.0

    def _actions(self, node: fx.Node) -> tuple[str, ...]:
        if node.target is ops.wait:
            started = self.ids.get(cast("fx.Node", node.args[0]))
            return (f"wait {started}",) if started else ()
        if node.target is sharding.await_gathers:
            parameters = set(cast("list[fx.Node]", node.args[0]))
            return tuple(f"wait {i}" for n, i in self._gathers().items() if parameters & set(n.args[0]))  # type: ignore[arg-type]
        collective = self._collective(node)
        if collective is None:
            return ()
        self.collectives.append(collective)
        self.ids[node] = collective.id
        waits_itself = node.target in (host_updates.begin_updates, host_updates.end_updates)
        return (f"start {collective.id}", *((f"wait {collective.id}",) if waits_itself else ()))

    def _gathers(self) -> dict[fx.Node, str]:
        """The all-gathers of the program, which are started at the end of a step and awaited in the next."""
        nodes = [n for n in self.compiled.step.nodes if n.target is sharding.all_gather_shards]
        return {node: f"gather{number}" for number, node in enumerate(nodes)}

    def _collective(self, node: fx.Node) -> Collective | None:
        """The collective that a node starts."""
        number, args = len(self.collectives), node.args
        found: Any
        match node.target:
            case host_updates.begin_updates | host_updates.end_updates:
                found = ("host_barrier", 0, *args[-2:], {})
            case sharding.all_gather_shards:
                *_, name, degree, _, _, tensors = args
                nbytes = sum(map(_nbytes, cast("list[fx.Node]", args[0])))
                found = ("all_gather_shards", nbytes, name, tensors, {"block": degree})
            case sharding.reduce_scatter:
                _, _, bounds, name, degree, tensors, *_ = args
                nbytes = cast("list[int]", bounds)[-1] * node.meta["val"].element_size()
                in_updates = self.is_one_host and False in (node.kwargs.get("sums"), *args[6:])
                found = ("reduce_scatter", nbytes, name, tensors, {"block": degree})
                found = ("host_barrier", 0, name, tensors, {}) if in_updates else found
            case ops.all_reduce:
                found = ("all_reduce", _nbytes(node), *args[1:3], {"is_flat": False})
            case ops.all_reduce_fused:
                found = ("all_reduce", _nbytes(node), *args[3:5], {})
            case ops.all_reduce_hierarchical:
                _, _, _, name, block, by_leaders, tensors = args
                how = {"block": block, "by_leaders": by_leaders}
                found = ("all_reduce_hierarchical", _nbytes(node), name, tensors, how)
            case _:
                return None
        kind, size, group, what, options = found
        number_of = self._gathers()[node] if kind == "all_gather_shards" else f"{kind}{number}"
        return Collective(number_of, kind, size, group, what, **options)


def update_bytes(compiled: Compiled) -> int:
    """The bytes of the parameters that a compiled step updates."""
    total = 0
    for node in compiled.step.nodes:
        if node.target in UPDATES:
            parameters = node.args[0] if isinstance(node.args[0], list | tuple) else [node.args[0]]
            total += sum(_nbytes(cast("fx.Node", parameter)) for parameter in parameters)
    return total


def num_mutated(node: fx.Node) -> int:
    """How many lists of tensors, or tensors, an update mutates."""
    arguments = cast("torch._ops.OpOverload", node.target)._schema.arguments
    return sum(
        1 for argument in arguments if argument.alias_info is not None and argument.alias_info.is_write
    )


def _is_small(node: fx.Node) -> bool:
    """True: the node's value is a few elements, such as the first gradient, so that its call is all of its time."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return not isinstance(value, list | tuple)
    return all(isinstance(size, int) for size in value.shape) and _nbytes(node) <= _SMALL_BYTES


def _is_aten(node: fx.Node) -> bool:
    return getattr(node.target, "namespace", "") in ("aten", "prims")


def _nbytes(node: fx.Node) -> int:
    value = node.meta["val"]
    return int(value.numel()) * int(value.element_size())


def _grouped(
    nodes: Iterable[NodeTime], key: Callable[[NodeTime], tuple[str, ...]]
) -> dict[tuple[str, ...], tuple[float, float]]:
    groups: dict[tuple[str, ...], list[NodeTime]] = {}
    for node in nodes:
        groups.setdefault(key(node), []).append(node)
    return {
        k: (median(n.ms for n in group), median(n.spread_ms for n in group)) for k, group in groups.items()
    }

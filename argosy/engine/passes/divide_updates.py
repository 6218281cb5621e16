"""Divide the sums and updates of a step between the ranks of a host, which have the variables in shared memory.

    before    b = gradient_buffer(…)
              s = all_reduce_fused(b, 0, 128, 'dp')                   every rank: the sum of all gradients …
              w = wait(s)
              fused_momentum([w1, w2], [bucket_view(w, p1, 0), bucket_view(w, p2, 64)], [v1, v2], …)
                                                                      … and the update of all parameters
    after     b = gradient_buffer(…)
              begin_updates([w1, w2, v1, v2], [b], [0], [128], 'dp')  a barrier: all gradients are written
              fused_momentum([w1, w2], [rank_gradients(b, p1, 0), rank_gradients(b, p2, 64)], [v1, v2], …)
                                                                      every rank: sum and update of its shard
              end_updates([w1, w2, v1, v2], 'dp')                     a barrier: all shards are updated

A sum and its update are one pass over memory. A gradient that is fetched is summed a second time, by this rank alone:
the collectives do not depend on the fetches, in which ranks may differ.

The recorded program stays as it is; this runs last on the copy that is compiled. The whole recorded program decides
which buckets are divided (`divisible`): it is the same on all ranks, and the nodes that are live on one rank are not.
In every step the ranks agree on whether the variables are shared (collective/host_memory.py). The results are the same,
bit for bit. The switch is `build_strategy.divide_updates`.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import fx
from torch._ops import OpOverload

from argosy.engine.ir.effects import mutated_inputs, storage
from argosy.engine.ir.infer import infer
from argosy.engine.ops.collectives import all_reduce_fused, wait
from argosy.engine.ops.gradient_buckets import bucket_view, gradient_buffer
from argosy.engine.ops.host_updates import begin_updates, end_updates, rank_gradients, sum_of_ranks
from argosy.engine.ops.updates import FUSED
from argosy.engine.optimizers import OPTIMIZERS
from argosy.engine.optimizers.spec import OptimizerSpec
from argosy.engine.passes.base import Pass, Report

GROUP = "dp"
_IN_KERNEL = torch.bfloat16
Memory = frozenset[int | None]


@dataclass(frozen=True)
class DivideChoice:
    """The buckets of a program that are divided, as their all_reduce_fused nodes, and why the others are not."""

    starts: frozenset[fx.Node]
    reason: str = ""


def divisible(graph: fx.Graph) -> DivideChoice:
    """Choose the buckets of a recorded program whose sums are read by updates only."""
    starts = graph.find_nodes(op="call_function", target=all_reduce_fused)
    if any(_wait_of(start) is not start.next for start in starts):
        return DivideChoice(
            frozenset(), "all-reduces overlap with backward, as sync_nccl_allreduce=False asks for"
        )
    obstacles = {start: obstacle for start in starts if (obstacle := _obstacle(start))}
    chosen = [start for start in starts if start not in obstacles]
    reason = next(iter(obstacles.values()), "" if starts else "no bucket of gradients")
    updates = {update for start in chosen for update in _updates(start)}
    if not updates:
        return DivideChoice(frozenset(), reason)
    views = {view for start in chosen for view in _views(start)}
    memory = frozenset(storage(v) for update in updates for v in _variables(update, views))
    if problem := _conflict(graph, chosen, updates, memory):
        return DivideChoice(frozenset(), problem)
    return DivideChoice(frozenset(chosen), reason)


def _obstacle(start: fx.Node) -> str:
    """Why this bucket cannot be divided, or ""."""
    buffer = cast("fx.Node", start.args[0])
    if buffer.target is not gradient_buffer or buffer.args[2] != GROUP:
        return f"{buffer.name} is not shared by all ranks"
    for view in _views(start):
        if view.target is not bucket_view:
            return f"{view.name} reads a whole bucket"
        for user in view.users:
            if user.target not in FUSED or user.args[1] is not view:
                return f"{user.name} reads {view.args[1]}, and only updates may"
            if problem := _unsupported(user):
                return problem
    return ""


def _unsupported(update: fx.Node) -> str:
    if not _spec(update).is_elementwise:
        return f"{_spec(update).name} needs norms of whole parameters"
    parameter = cast("fx.Node", update.args[0])
    dtype = parameter.meta["val"].dtype
    if _argument(update, "master") is not None and dtype is not _IN_KERNEL:
        return f"{parameter.name} is {dtype}"
    if parameter.meta.get("is_table"):
        return f"{parameter.name} is a sparse table"
    if any(source.op != "placeholder" for source in mutated_inputs(update)):
        return f"{update.name} updates a part of a variable"
    return ""


def _spec(update: fx.Node) -> OptimizerSpec:
    return OPTIMIZERS[cast("OpOverload", update.target)._opname.removeprefix("fused_")]


def _argument(update: fx.Node, name: str) -> Any:
    names = [argument.name for argument in cast("OpOverload", update.target)._schema.arguments]
    place = names.index(name)
    return update.args[place] if place < len(update.args) else update.kwargs.get(name)


def _views(start: fx.Node) -> list[fx.Node]:
    """The sums of a bucket, a view for each gradient."""
    return list(_wait_of(start).users)


def _wait_of(start: fx.Node) -> fx.Node:
    (arrived,) = [user for user in start.users if user.target is wait]
    return arrived


def _updates(start: fx.Node) -> list[fx.Node]:
    """The updates, fused or not, that read the sums of a bucket."""
    return list(dict.fromkeys(user for view in _views(start) for user in view.users))


def _variables(update: fx.Node, gradients: Collection[fx.Node]) -> list[fx.Node]:
    """The variables of the scope that an update mutates with these gradients: parameters, masters and state.

    Not the step counts: every rank increments its own. Not the 16-bit copies of weights, which are no variables.
    """
    slots = _spec(update).slots
    counts = {slot.op_name or slot.name for slot in slots if slot.is_count}
    columns = []
    for argument in cast("OpOverload", update.target)._schema.arguments:
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        if is_written and argument.name not in counts:
            column = _argument(update, argument.name)
            columns.append(column if isinstance(column, list | tuple) else [column])
    read = update.args[1] if isinstance(update.args[1], list | tuple) else [update.args[1]]
    places = [place for place, gradient in enumerate(read) if gradient in gradients]
    variables = [column[place] for column in columns if column for place in places]
    return [v for v in variables if isinstance(v, fx.Node) and "copy_of" not in v.meta]


def _conflict(graph: fx.Graph, starts: Sequence[fx.Node], updates: set[fx.Node], memory: Memory) -> str:
    """Why the updates cannot run between two barriers, without anything else that touches their variables, or ""."""
    ordered = list(graph.nodes)
    last = max(i for i, node in enumerate(ordered) if node in updates)
    first = min(i for i, node in enumerate(ordered) if node in updates)
    buffers = {storage(cast("fx.Node", start.args[0])) for start in starts}
    for place, node in enumerate(ordered):
        if node in updates or node.op != "call_function":
            continue
        mutated = {storage(source) for source in mutated_inputs(node)}
        if mutated & memory:
            return f"{node.name} writes a variable that an update writes, too"
        if first < place < last and {storage(source) for source in node.all_input_nodes} & memory:
            return f"{node.name} reads a variable between the updates"
        if place > first and node.target not in (all_reduce_fused, wait) and mutated & buffers:
            return f"{node.name} writes a gradient after the first update"
    return ""


@dataclass(frozen=True)
class DivideUpdates(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "divide_updates"

    choice: DivideChoice
    """The buckets, in the compiled graph."""
    live_out: frozenset[fx.Node]
    """The nodes whose values are read after the step: fetches."""
    sums_all: bool = False
    """True: compute the sums of all gradients as well, to check their values."""

    def run(self, graph: fx.Graph) -> Report:
        starts = [n for n in graph.nodes if n in self.choice.starts]
        updates = list(dict.fromkeys(update for start in starts for update in _updates(start)))
        others = len(graph.find_nodes(op="call_function", target=all_reduce_fused)) - len(starts)
        reason = f"; {others} are not: {self.choice.reason}" if self.choice.reason and others else ""
        if not updates:
            return Report(0, f"no updates are divided{reason}")
        place = {node: number for number, node in enumerate(graph.nodes)}
        first, last = min(updates, key=place.__getitem__), max(updates, key=place.__getitem__)
        views = {view for start in starts for view in _views(start)}
        # In the order of the program, which is the same on ranks with different kernels.
        variables = sorted({v for u in updates for v in _variables(u, views)}, key=place.__getitem__)
        whats = [str(start.args[4]) for start in starts]
        what = whats[0] if len(whats) == 1 else f"{whats[0]}, …, {whats[-1]}"
        spans = [[start.args[i] for start in starts] for i in range(3)]
        begin = _insert(graph, first, begin_updates, (variables, *spans, GROUP, what), "communicate")
        for start in starts:
            self._replace_views(graph, start, begin)
        _insert(graph, last.next, end_updates, (variables, GROUP, what), "communicate")
        text = f"{len(updates)} updates of {len(variables)} variables in {len(starts)} buckets are divided{reason}"
        return Report(len(updates), text)

    def _replace_views(self, graph: fx.Graph, start: fx.Node, begin: fx.Node) -> None:
        buffer, first, *_ = cast("tuple[fx.Node, int]", start.args)
        (arrived,) = [user for user in start.users if user.target is wait]
        for view in list(arrived.users):
            like, offset = cast("tuple[fx.Node, int]", view.args[1:])
            gradient = _insert(
                graph, begin.next, rank_gradients, (buffer, like, first + offset, GROUP), "communicate"
            )
            view.replace_all_uses_with(gradient)
            if view in self.live_out or self.sums_all:
                total = _insert(graph, gradient.next, sum_of_ranks, (gradient,), "communicate")
                total.meta["replaces"] = view
            graph.erase_node(view)
        graph.erase_node(arrived)
        graph.erase_node(start)


def divided_variables(graph: fx.Graph) -> list[fx.Node]:
    """The variables whose updates are divided."""
    begins = graph.find_nodes(op="call_function", target=begin_updates)
    return [v for begin in begins for v in cast("list[fx.Node]", begin.args[0])]


def _insert(
    graph: fx.Graph, before: fx.Node, target: OpOverload, args: tuple[Any, ...], role: str
) -> fx.Node:
    with graph.inserting_before(before):
        node = graph.create_node("call_function", target, args, {}, target._opname)
    node.meta = {"role": role, "source": before.meta.get("source"), "val": None}
    node.meta["val"] = infer(node) if target in (rank_gradients, sum_of_ranks) else None
    return node

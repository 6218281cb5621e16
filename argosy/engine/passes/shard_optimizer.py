"""Divide the updates and the optimizer state of each bucket between the ranks (ZeRO).

    before    b = gradient_buffer(…)
              s = all_reduce_fused(b, 0, 128, 'dp')
              w = wait(s)
              momentum(w1, bucket_view(w, p1, 0), v1, …);  momentum(w2, bucket_view(w, p2, 64), v2, …)
    after     b = shard_buffer(…)
              s = reduce_scatter(b, 0, [0, 96, 128], 'dp', 2)          on rank 0:
              w = wait(s)
              momentum(w1, bucket_view(w, p1, 0), v1, …)
              momentum(shard_rows(w2, 0, 4), shard_rows(bucket_view(w, p2, 64), 0, 4), v2, …)       v2 has 4 rows
              all_gather_shards([w1, w2], [w], [0, 8, 8, 0, 4, 8], 'dp', 2, True, True)

All updates come before the first all-gather. The all-gathers start in the order in which the next forward reads the
parameters, so that it need not wait for those of the last layers.

What lies between a gradient and its update is computed on the same rows, so it must be elementwise: clipping by value,
weight decay, casts. Norms (ClipGradByNorm, ClipGradByGlobalNorm) are summed over the ranks, and so is the flag for
overflows of float16. The programs of the ranks differ in rows only: all run the same collectives.
Runs last, after order_updates. Paddle's name for it is `sharding`; ZeRO's names are stage 1 (state) and 2 (gradients).
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, cast

import torch
from torch import fx
from torch._ops import OpOverload

from argosy.engine.collective import sharding_group
from argosy.engine.errors import ConfigError
from argosy.engine.ir.effects import mutated_inputs, storage
from argosy.engine.ir.infer import infer
from argosy.engine.ir.program import Program
from argosy.engine.ir.verify import describe
from argosy.engine.ops.collectives import all_reduce, all_reduce_fused, wait
from argosy.engine.ops.gradient_buckets import bucket_view
from argosy.engine.ops.loss_scaling import found_inf
from argosy.engine.ops.sharding import (
    all_gather_shards,
    reduce_scatter,
    shard_buffer,
    shard_rows,
    shard_squares,
)
from argosy.engine.ops.updates import UPDATES
from argosy.engine.optimizers import OPTIMIZERS
from argosy.engine.passes.base import Pass, Report, new_collectives
from argosy.engine.passes.shard_plan import (
    BucketSlot,
    Shard,
    bucket_bounds,
    mark,
    row_bounds,
    shard_of,
    shards,
)

aten = torch.ops.aten
_NORM = aten.linalg_vector_norm.default
_COPIES = (aten._to_copy.default, aten.clone.default)
_REMEDY = "turn strategy.sharding off"


@dataclass(frozen=True)
class ShardOptimizer(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "shard_optimizer"

    rank: int
    ranks: int
    degree: int
    """The number of consecutive ranks that share the state of the optimizer."""
    shares_weights: bool = True
    """True: the ranks of a group have the parameters in shared memory, if they can."""

    def run(self, graph: fx.Graph) -> Report:
        starts = new_collectives(graph, all_reduce_fused)
        if not starts:
            return Report(0, "no all_reduce_fused")
        buckets = [_Bucket.of(start, self.degree) for start in starts]
        _check_order(graph, buckets)
        group = sharding_group("dp", self.degree, self.ranks)
        rewriting = _Rewriting(graph, buckets, self.rank, group)
        for node in list(graph.nodes):
            rewriting.visit(node)
        rewriting.finish(self.shares_weights)
        local = sum(b.bounds[i + 1] - b.bounds[i] for b in buckets for i in [self.rank % self.degree])
        total = sum(b.bounds[-1] for b in buckets)
        text = (
            f"{len(starts)} buckets: rank {self.rank} updates {local} of {total} elements, "
            f"{self.ranks // self.degree} x {self.degree} ranks"
        )
        return Report(len(starts), text)


@dataclass
class _Bucket:
    """A bucket, and the updates that read it."""

    start: fx.Node
    arrived: fx.Node
    bounds: list[int]
    rows: dict[fx.Node, tuple[int, ...]]
    """For each gradient in the bucket, a bucket_view, the bounds of the ranks' rows."""
    updated: list[tuple[fx.Node, tuple[int, ...]]] = field(default_factory=list)
    """Parameters, with the bounds of their rows."""
    gather: fx.Node | None = None
    """The all-gather of the parameters, after the last of their updates."""

    @classmethod
    def of(cls, start: fx.Node, degree: int) -> _Bucket:
        (arrived,) = [user for user in start.users if user.target is wait]
        slots = {user: _slot(user) for user in arrived.users if user.target is bucket_view}
        bounds = bucket_bounds(list(slots.values()), cast("int", start.args[2]), degree)
        return cls(start, arrived, bounds, {view: row_bounds(slot, bounds) for view, slot in slots.items()})


def _slot(view: fx.Node) -> BucketSlot:
    value = view.meta["val"]
    return BucketSlot(cast("int", view.args[2]), value.numel(), value.shape[0] if value.ndim else 1)


def _check_order(graph: fx.Graph, buckets: Sequence[_Bucket]) -> None:
    """Each wait must follow the last backward node: then no rank reads weights when an update begins."""
    waits = {bucket.arrived for bucket in buckets}
    for node in reversed(graph.nodes):
        if node.op != "call_function" or node.meta["role"] in ("forward", "backward"):
            break
        waits.discard(node)
    if waits:
        raise ConfigError(
            f"{describe(next(iter(waits)))} precedes nodes of forward or backward, so weights would be updated while "
            f"they are read; call minimize after the last layer, or {_REMEDY}"
        )


class _Rewriting:
    """The state of one run of the pass; `visit` gets the nodes in order."""

    def __init__(self, graph: fx.Graph, buckets: Sequence[_Bucket], rank: int, group: str) -> None:
        self.graph, self.buckets, self.rank, self.group = graph, buckets, rank, group
        self.bucket_of = {view: bucket for bucket in buckets for view in bucket.rows}
        self.rows_of: dict[fx.Node, tuple[fx.Node, fx.Node]] = {}
        """For each node with the shape of a gradient: its rows of this rank, and the bucket_view of that gradient."""
        self.norms: dict[fx.Node, fx.Node] = {}
        """Norms of gradients that are not summed over the ranks yet, each with the rows of this rank."""
        self.sums: list[fx.Node] = []
        """Other sums over the ranks; the last all-gather uses them, so that they are live on ranks without readers."""

    def visit(self, node: fx.Node) -> None:
        if node in self.bucket_of:
            self.rows_of[node] = self._sliced(node, node, node.next), node
            return
        inputs = node.all_input_nodes
        if any(source in self.norms for source in inputs):
            self._sum_norms(node)
        views = list({self.rows_of[n][1]: None for n in inputs if n in self.rows_of})
        if not views or node.target is shard_rows:
            return
        if node.target in UPDATES:
            self._update(node, self._only(node, views))
        elif node.target is found_inf:
            self._found_inf(node)
        elif node.target is _NORM and node.args[1:] in ((), (2,)) and not node.kwargs:
            self.norms[node] = self.rows_of[inputs[0]][0]
        else:
            self._elementwise(node, self._only(node, views))

    def finish(self, shares_weights: bool) -> None:
        """Replace the collectives, after all readers of gradients are rewritten."""
        for view, (sliced, _) in self.rows_of.items():
            if view is not sliced and not sliced.users:  # this rank has none of them
                self.graph.erase_node(sliced)
        last = self._order_gathers()
        for bucket in self.buckets:
            start, degree = bucket.start, len(bucket.bounds) - 1
            buffer, first, _, group, what = start.args
            if cast("fx.Node", buffer).target is not shard_buffer:
                cast("fx.Node", buffer).target = shard_buffer
                cast("fx.Node", buffer)._rename("shard_buffer")
            start.target, start.args = reduce_scatter, (buffer, first, bucket.bounds, group, degree, what)
            start._rename("reduce_scatter")
            if bucket.gather is not None:
                sums = [bucket.arrived, *(self.sums if bucket.gather is last else ())]
                parameters, rows = zip(*bucket.updated, strict=True)
                flat = [bound for bounds in rows for bound in bounds]
                of = str(what).replace("@GRAD", "")
                bucket.gather.args = (
                    *(list(parameters), sums, flat, "dp", degree),
                    *(shares_weights, bucket.gather is last, of),
                )

    def _order_gathers(self) -> fx.Node | None:
        """Move the all-gathers behind all updates, in the order in which a step first reads their parameters.

        They stay where they are if a node after one of them reads its parameters. Returns the last of them.
        """
        gather_of = {
            storage(parameter): bucket.gather
            for bucket in self.buckets
            for parameter, _ in bucket.updated
            if bucket.gather is not None
        }
        place = {node: number for number, node in enumerate(self.graph.nodes)}
        last = max(gather_of.values(), key=place.__getitem__, default=None)
        if last is None:
            return None
        first_read: dict[fx.Node, int] = {}
        for node in self.graph.nodes:
            memory = {storage(source) for source in node.all_input_nodes}
            for gather in {gather_of[number] for number in memory if number in gather_of}:
                first_read.setdefault(gather, place[node])
                if place[gather] < place[node] < place[last]:
                    return last
        after = last.next
        for gather in sorted(first_read, key=first_read.__getitem__):
            after.prepend(gather)
        return after.prev

    def _only(self, node: fx.Node, views: Sequence[fx.Node]) -> fx.Node:
        """The gradient that a node depends on; raises if there are several."""
        if len(views) > 1:
            self._reject(node)
        return views[0]

    def _reject(self, node: fx.Node) -> NoReturn:
        raise ConfigError(
            f"{describe(node)} ({node.target}) needs whole gradients, or several of them, and under strategy.sharding "
            f"a rank has only rows of each; clip with nn.ClipGradByGlobalNorm, ClipGradByNorm or ClipGradByValue, or "
            f"{_REMEDY}"
        )

    def _sliced(self, node: fx.Node, view: fx.Node, before: fx.Node) -> fx.Node:
        """This rank's rows of a node with the shape of the gradient; a new node before `before`."""
        bounds = self.bucket_of[view].rows[view]
        index = self.rank % (len(bounds) - 1)
        return _insert(self.graph, before, shard_rows, (node, bounds[index], bounds[index + 1]), "optimize")

    # --- the optimizer --------------------------------------------------------------------------------

    def _update(self, node: fx.Node, view: fx.Node) -> None:
        optimizer = cast("OpOverload", node.target)._opname
        if not OPTIMIZERS[optimizer].is_elementwise:
            raise ConfigError(
                f"strategy.sharding and the optimizer {optimizer} are both on; {optimizer} needs norms of whole "
                f"parameters, and each rank updates only rows of them: use another optimizer, or {_REMEDY}"
            )
        parameter, gradient = cast("tuple[fx.Node, fx.Node]", node.args[:2])
        bucket = self.bucket_of[view]
        bounds = bucket.rows[view]
        bucket.updated.append((parameter, bounds))
        if bucket.gather is None:
            bucket.gather = _insert(self.graph, node.next, all_gather_shards, None, "communicate")
        else:
            node.append(bucket.gather)
        for state in [source for source in mutated_inputs(node) if source is not parameter]:
            _shard_state(node, parameter, state, bounds, self.rank)
        index = self.rank % (len(bounds) - 1)
        if bounds[index] == bounds[index + 1]:
            self.graph.erase_node(node)
            return
        node.update_arg(0, self._sliced(parameter, view, node))
        node.update_arg(1, self.rows_of[gradient][0])

    def _elementwise(self, node: fx.Node, view: fx.Node) -> None:
        """Compute a node on the rows of this rank."""
        target = node.target
        is_pointwise = isinstance(target, OpOverload) and torch.Tag.pointwise in target.tags
        if not (is_pointwise or target in _COPIES) or any(True for _ in mutated_inputs(node)):
            self._reject(node)
        whole = view.meta["val"].shape
        for source in node.all_input_nodes:
            shape = source.meta["val"].shape
            if source in self.rows_of:
                node.replace_input_with(source, self.rows_of[source][0])
            elif len(shape) == len(whole) and len(whole) and shape[0] == whole[0]:
                node.replace_input_with(source, self._sliced(source, view, node))
        node.meta["val"] = infer(node)
        self.rows_of[node] = node, view

    def _found_inf(self, node: fx.Node) -> None:
        """Sum the flag for overflows over the ranks: it is set if a gradient of any rank overflowed."""
        gradients = [self.rows_of.get(n, (n, n))[0] for n in cast("list[fx.Node]", node.args[0])]
        node.update_arg(0, [n for n in gradients if n.meta["val"].numel()])
        summed = self._all_reduced(node, node.next, "found_inf")
        node.replace_all_uses_with(summed, delete_user_cb=lambda user: user.target is not all_reduce)
        summed.meta["replaces"] = node

    def _sum_norms(self, before: fx.Node) -> None:
        """Insert the norms of whole gradients: the root of the sum of squares over the ranks."""
        norms, rows = list(self.norms), list(self.norms.values())
        self.norms = {}
        places = [i for i, part in enumerate(rows) if part.meta["val"].numel()]
        args = ([rows[i] for i in places], places, len(norms))
        squares = _insert(self.graph, before, shard_squares, args, "optimize", norms[0].meta["val"].fake_mode)
        summed = self._all_reduced(squares, before, f"{len(norms)} norms")
        roots = _insert(self.graph, before, aten.sqrt.default, (summed,), "optimize")
        for number, norm in enumerate(norms):
            root = _insert(self.graph, before, aten.select.int, (roots, 0, number), "optimize")
            cast_root = _insert(self.graph, before, aten._to_copy.default, (root,), "optimize", dtype=norm)
            cast_root.meta["replaces"] = norm
            norm.replace_all_uses_with(cast_root)
            self.graph.erase_node(norm)

    def _all_reduced(self, node: fx.Node, before: fx.Node, what: str) -> fx.Node:
        started = _insert(self.graph, before, all_reduce, (node, self.group, what), "communicate")
        summed = _insert(self.graph, before, wait, (started,), "communicate")
        self.sums.append(summed)
        return summed


def _shard_state(
    update: fx.Node, parameter: fx.Node, state: fx.Node, bounds: tuple[int, ...], rank: int
) -> None:
    """Make a variable of the optimizer store this rank's rows only."""
    value = state.meta["val"]
    if state.op != "placeholder":
        raise ConfigError(
            f"{describe(update)} updates {state.name}, which is not a variable of the scope, and cannot be sharded; "
            f"{_REMEDY}"
        )
    is_count = value.shape != parameter.meta["val"].shape
    shard = Shard(tuple(value.shape), bounds, is_count)
    mark(state, shard)
    if not is_count:
        with value.fake_mode:
            state.meta["val"] = torch.empty(
                [last - first for first, last in [shard.rows(rank)]] + list(value.shape[1:]),
                dtype=value.dtype,
            )


def _insert(
    graph: fx.Graph,
    before: fx.Node,
    target: OpOverload,
    args: tuple[Any, ...] | None,
    role: str,
    fake_mode: Any = None,
    dtype: fx.Node | None = None,
) -> fx.Node:
    """A new node; `dtype` has the dtype of the result, `fake_mode` is for an op that may have no inputs."""
    kwargs = {} if dtype is None else {"dtype": dtype.meta["val"].dtype}
    with graph.inserting_before(before):
        node = graph.create_node("call_function", target, args or (), kwargs, target._opname)
    node.meta = {"role": role, "source": before.meta.get("source"), "val": None}
    if fake_mode is not None:
        with fake_mode:
            node.meta["val"] = infer(node) if node.all_input_nodes else target(*node.args)
    elif args is not None:
        node.meta["val"] = infer(node)
    return node


def reject_sharded_state(updates: Sequence[fx.Node]) -> None:
    """Raise if new updates use state of which this rank has only some rows since an earlier `minimize`."""
    for update in updates:
        for state in mutated_inputs(update):
            if shard_of(state) is not None:
                raise ConfigError(
                    f"{describe(update)}: {state.name} is updated by two minimize calls of one optimizer, and under "
                    f"strategy.sharding a rank has only some rows of it; add the losses, or {_REMEDY}"
                )


def adopt_shards(program: Program) -> None:
    """Give the variables of sharded state the shape of this rank's rows."""
    for name, variable in program.persistables().items():
        node = program.recorder.placeholder_of.get(variable.value)
        if node is not None and shard_of(node) is not None and node.meta["val"] is not variable.value:
            _set_value(program, name, node)
            program.recorder.placeholder_of[node.meta["val"]] = node
    program.touch()


def shard_startup(program: Program, startup: Program, rank: int) -> None:
    """Let the startup program initialize this rank's rows of sharded state only."""
    for name, shard in shards(program).items():
        if shard.is_count or name not in startup.vars:
            continue
        whole = startup.vars[name].node
        rows = _insert(startup.graph, whole.next, shard_rows, (whole, *shard.rows(rank)), "forward")
        copied = _insert(startup.graph, rows.next, aten.clone.default, (rows,), "forward")  # frees the rest
        _set_value(startup, name, copied)
    startup.touch()


def _set_value(program: Program, name: str, node: fx.Node) -> None:
    variable = program.vars[name]
    variable.value = node.meta["val"]
    program.recorder.bind(variable.value, node)
    program.register(variable)

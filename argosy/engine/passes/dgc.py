"""Deep Gradient Compression: all-gather only the largest elements of large gradients.

    before    g1 = …;  g2 = …
              momentum(w1, g1, u1, rate, …);  momentum(w2, g2, u2, rate, …)
    after     g1 = …;  g2 = …
              s  = dgc_all_reduce([g1, g2], [w1, w2], [u1, u2], [v1, v2], step, …)    starts here
              a  = wait(s)                     directly after it, or (`overlap`) before the first reader
              r1 = bucket_view(a, v1, 0);  r2 = bucket_view(a, v2, 16384)
              dgc_momentum([w1, w2], [r1, r2], [u1, u2], step, rate, …)

Runs before insert_all_reduce, which sums the other gradients. Gradients are placed in buckets in the order of backward;
a bucket is full from `memory_mb` of dense gradients on. The velocities u and the residuals v differ between the ranks:
`Program.rank_local` returns their names. Paddle's name for it is `dgc`.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import fx

from argosy.engine.errors import ConfigError
from argosy.engine.ir.infer import infer
from argosy.engine.ops.collectives import wait
from argosy.engine.ops.dgc import dgc_all_reduce, dgc_momentum
from argosy.engine.ops.gradient_buckets import bucket_view
from argosy.engine.ops.updates import update_op
from argosy.engine.passes.base import Pass, Report

_MIB = 1 << 20
_MAX_ELEMENTS = 2**31 - 1
"""Indices are sent as int32."""


@dataclass(frozen=True)
class CompressedGradient:
    """A parameter whose gradient is compressed."""

    name: str
    """The name of the gradient."""
    gradient: fx.Node
    parameter: fx.Node
    residual: fx.Node
    l2: float = 0.0
    l1: float = 0.0
    clip_norm: float = 0.0


@dataclass(frozen=True)
class CompressGradients(Pass):
    """See the module's picture. The updates of these parameters must be `momentum`, without decay."""

    name: ClassVar[str] = "dgc"

    gradients: tuple[CompressedGradient, ...]
    step: fx.Node
    begin: int
    rampup: int
    sparsity: tuple[float, ...]
    memory_mb: float = 32
    """A bucket is full from this size of dense gradients on; 0 or less: one gradient per bucket."""
    group: str = "dp"
    overlap: bool = False

    def run(self, graph: fx.Graph) -> Report:
        place = {node: number for number, node in enumerate(graph.nodes)}
        in_order = sorted(self.gradients, key=lambda g: place[g.gradient])
        buckets = list(self._buckets(in_order))
        for bucket in buckets:
            self._compress(graph, bucket, place)
        elements = sum(g.gradient.meta["val"].numel() for g in in_order)
        text = f"{len(in_order)} gradients with {elements} elements are compressed, in {len(buckets)} buckets"
        return Report(len(in_order), text)

    def _buckets(self, gradients: Sequence[CompressedGradient]) -> Iterator[list[CompressedGradient]]:
        bucket: list[CompressedGradient] = []
        size = 0
        for gradient in gradients:
            value = gradient.gradient.meta["val"]
            if size // 4 + value.numel() > _MAX_ELEMENTS:
                raise ConfigError(
                    f"{gradient.name} is too large to be sent with 32-bit indices; turn dgc off"
                )
            bucket.append(gradient)
            size += value.nbytes
            if size >= self.memory_mb * _MIB:
                yield bucket
                bucket, size = [], 0
        if bucket:
            yield bucket

    def _compress(self, graph: fx.Graph, bucket: list[CompressedGradient], place: dict[fx.Node, int]) -> None:
        updates = [_update_of(gradient) for gradient in bucket]
        _, _, _, rate, _, mu, nesterov, _ = updates[0].args
        columns = zip(*(update.args for update in updates), strict=True)
        parameters, gradients, velocities, _, factors = (list(column) for column in list(columns)[:5])
        residuals = [g.residual for g in bucket]
        numbers = [g.l2 for g in bucket], [g.l1 for g in bucket], [g.clip_norm for g in bucket]
        names = [g.name for g in bucket]
        what = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
        schedule = self.begin, self.rampup, list(self.sparsity), what
        lists = gradients, parameters, velocities, residuals
        last = max((g.gradient for g in bucket), key=place.__getitem__)
        with graph.inserting_after(last):
            args = (*lists, self.step, self.group, mu, nesterov, *numbers, *schedule)
            started = _create(graph, dgc_all_reduce, args, last)
        first_update = min(updates, key=place.__getitem__)
        with graph.inserting_before(first_update) if self.overlap else graph.inserting_after(started):
            arrived = view = _create(graph, wait, (started,), last)
        views, first = [], 0
        for gradient in bucket:
            with graph.inserting_after(view):
                view = _create(graph, bucket_view, (arrived, gradient.residual, first), last)
            view.meta |= {"replaces": gradient.gradient, "reduced": True}
            views.append(view)
            first += gradient.gradient.meta["val"].numel()
        with graph.inserting_before(max(updates, key=place.__getitem__)):
            update_args = (parameters, views, velocities, self.step, rate, factors, mu, nesterov, *numbers)
            _create(graph, dgc_momentum, (*update_args, self.begin), updates[0], "optimize")
        for update in updates:
            graph.erase_node(update)
        for state in (*velocities, *residuals):
            state.meta["rank_local"] = True


def _update_of(gradient: CompressedGradient) -> fx.Node:
    """The momentum node of the parameter, which reads the gradient itself."""
    target = update_op("momentum")
    (update,) = [
        user
        for user in gradient.gradient.users
        if user.target is target and user.args[0] is gradient.parameter
    ]
    return update


def _create(
    graph: fx.Graph,
    target: torch._ops.OpOverload,
    args: tuple[Any, ...],
    like: fx.Node,
    role: str = "communicate",
) -> fx.Node:
    node = graph.create_node("call_function", target, args, {}, target._opname)
    node.meta = {"role": role, "source": like.meta.get("source")}
    node.meta["val"] = None if target is dgc_momentum else infer(node)
    return node

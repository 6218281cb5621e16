"""Fuse the updates of many parameters into one node.

    before    momentum(w1, g1, v1, rate, 1.0, 0.9, False, 1e-4)
              momentum(b1, g2, v2, rate, 2.0, 0.9, False, 0.0)
    after     fused_momentum([w1, b1], [g1, g2], [v1, v2], rate, [1.0, 2.0], 0.9, False, [1e-4, 0.0], [])

The fused node replaces the last of its updates. Updates whose gradients share an all-reduce bucket (fuse_all_reduce)
become one node per bucket, so that it can run as soon as the bucket has arrived. Arguments that are not lists must be
equal: the op, the learning rate variable, mu, betas, dtype. Updates are not fused across a node that reads or mutates
what one of them touches. Sparse tables keep their own update, as in Paddle. An update without others to be fused with
becomes a fused node of its own, so that the rounding of a parameter does not depend on its neighbours: torch's kernels
round the last elements of a tensor differently. The results are the same but for that.
Paddle's name for it is `fuse_all_optimizer_ops`.
"""

# SPDX-License-Identifier: Apache-2.0
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import fx
from torch._ops import OpOverload

from argosy.engine.ir.effects import mutated_inputs, storage
from argosy.engine.ir.periods import inherited
from argosy.engine.ops.collectives import wait
from argosy.engine.ops.gradient_buckets import bucket_view
from argosy.engine.ops.updates import FUSED
from argosy.engine.passes.base import Pass, Report

Cluster = list[fx.Node]
"""Updates that are fused into one node, in order."""


@dataclass(frozen=True)
class FuseOptimizer(Pass):
    """See the module's picture. Runs after fuse_all_reduce. A sparse table has `is_table` in its meta."""

    name: ClassVar[str] = "fuse_optimizer"

    def run(self, graph: fx.Graph) -> Report:
        updates = [n for n in graph.nodes if n.target in FUSED]
        dense = [n for n in updates if not n.args[0].meta.get("is_table")]
        clusters, obstacles = _clusters(graph, dense)
        fused = [cluster for cluster in clusters if len(cluster) > 1]
        notices = tuple(_notices(updates, dense, fused))
        for cluster in clusters:
            _fuse(graph, cluster)
        text = (
            f"{len(dense)} of {len(updates)} updates fused into {len(clusters)}"
            if updates
            else "no update that can be fused"
        )
        if len(fused) < len(clusters):
            text += f"; {len(clusters) - len(fused)} without a compatible update, alone"
        if len(dense) < len(updates):
            text += f"; skipped: {len(updates) - len(dense)} of sparse tables"
        return Report(len(dense), text + "".join(f"; {obstacle}" for obstacle in obstacles[:3]), notices)


def _notices(updates: Sequence[fx.Node], dense: Sequence[fx.Node], fused: Sequence[Cluster]) -> Iterator[str]:
    """Paddle's message, for each optimizer op."""
    num_all, num_dense = (Counter(n.target._opname for n in nodes) for nodes in (updates, dense))  # type: ignore[union-attr]
    for name in {cluster[0].target._opname: None for cluster in fused}:  # type: ignore[union-attr]
        yield (
            f"Find {name} operators : {num_all[name]}, and {num_dense[name]} for dense gradients. To make the speed "
            "faster, those optimization are fused during training."
        )


# --- clustering ---------------------------------------------------------------------------------------


def _clusters(graph: fx.Graph, updates: Sequence[fx.Node]) -> tuple[list[Cluster], list[str]]:
    """The updates in clusters, each of which may move to its last update; and what prevented larger clusters."""
    buckets = _awaited_buckets(graph)
    key_of = {node: (*_common(node), buckets.get(node, frozenset())) for node in updates}
    growing: dict[tuple[Any, ...], _Growing] = {}
    interrupted: dict[tuple[Any, ...], str] = {}
    finished: list[Cluster] = []
    obstacles = []
    for node in graph.nodes:
        for other, growth in list(growing.items()):
            if growth.conflicts_with(node):
                interrupted[other] = f"{node.name} is between {growth.cluster[0].name} and "
                finished.append(growing.pop(other).cluster)
        if node in key_of:
            key = key_of[node]
            if key in interrupted:
                obstacles.append(interrupted.pop(key) + node.name)
            growing.setdefault(key, _Growing()).add(node)
    return finished + [growth.cluster for growth in growing.values()], obstacles


class _Growing:
    """A cluster so far, and the storages that its updates read and mutate."""

    def __init__(self) -> None:
        self.cluster: Cluster = []
        self.read: set[int | None] = set()
        self.mutated: set[int | None] = set()

    def add(self, node: fx.Node) -> None:
        self.cluster.append(node)
        self.mutated |= set(map(storage, mutated_inputs(node)))
        self.read |= set(map(storage, node.all_input_nodes))

    def conflicts_with(self, node: fx.Node) -> bool:
        """True if the cluster cannot move past the node."""
        if any(storage(source) in self.mutated for source in node.all_input_nodes):
            return True
        return any(storage(source) in self.read for source in mutated_inputs(node))


def _common(node: fx.Node) -> tuple[Any, ...]:
    """What must be equal for all updates of a cluster."""
    arguments = _arguments(node)
    parameter = arguments[0][0].meta["val"]
    missing = tuple(value is None for value, _ in arguments)  # with a master weight or without
    return (
        node.target,
        parameter.dtype,
        parameter.device,
        missing,
        node.meta.get("period"),
        *(value for value, is_list in arguments if not is_list),
    )


def _arguments(node: fx.Node) -> list[tuple[Any, bool]]:
    """Each argument, None if it is omitted, and whether it is a list in the fused op."""
    assert isinstance(node.target, OpOverload), f"{node.name} calls {node.target!r}"
    single, fused = (op._schema.arguments for op in (node.target, FUSED[node.target]))
    rest = [node.kwargs.get(argument.name) for argument in single[len(node.args) :]]
    return [(value, "List" in str(a.type)) for value, a in zip((*node.args, *rest), fused, strict=True)]


def _awaited_buckets(graph: fx.Graph) -> dict[fx.Node, frozenset[fx.Node]]:
    """For each node of the optimizer, the waits for buckets of several gradients that it depends on."""
    views = defaultdict(list)
    for node in graph.nodes:
        if node.target is bucket_view:
            views[node.args[0]].append(node)
    if all(
        len(slices) == 1 for slices in views.values()
    ):  # one gradient per bucket: cluster regardless of them
        return {}
    awaited: dict[fx.Node, frozenset[fx.Node]] = {}
    for node in graph.nodes:
        if node.target is wait:
            awaited[node] = frozenset({node} if node in views else ())
        elif node.meta["role"] in ("optimize", "communicate"):
            awaited[node] = frozenset().union(*(awaited.get(source, ()) for source in node.all_input_nodes))
    return awaited


# --- the rewrite --------------------------------------------------------------------------------------


def _fuse(graph: fx.Graph, cluster: Cluster) -> None:
    first, last = cluster[0], cluster[-1]
    target = FUSED[first.target]  # type: ignore[index]  # an op
    with graph.inserting_before(last):
        skip = {"skip": first.kwargs["skip"]} if "skip" in first.kwargs else {}
        fused = graph.create_node("call_function", target, tuple(_fused_args(cluster)), skip, target._opname)
    fused.meta = {
        "role": first.meta["role"],
        "source": first.meta.get("source"),
        "val": None,
        **inherited(first),
    }
    for node in cluster:
        graph.erase_node(node)


def _fused_args(cluster: Cluster) -> Iterator[Any]:
    """The positional arguments of the fused node: all but `skip`."""
    columns = list(zip(*map(_arguments, cluster), strict=True))
    for column in columns[:-1]:
        first, is_list = column[0]
        yield [value for value, _ in column if value is not None] if is_list else first

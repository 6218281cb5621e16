"""Update many parameters with one node.

    before    momentum(w1, g1, v1, rate, 1.0, 0.9, False, 1e-4)
              momentum(b1, g2, v2, rate, 2.0, 0.9, False, 0.0)
    after     fused_momentum([w1, b1], [g1, g2], [v1, v2], rate, [1.0, 2.0], 0.9, False, [1e-4, 0.0], [])

The fused node stands where the last of its updates stood. Updates whose gradients travel together (fuse_all_reduce)
make a node of their own, so that it can run as soon as they have arrived. What cannot be a list must be equal: the
op, the variable of the rate, mu, betas, dtype. Updates between which something reads or changes what one of them
touches are not brought together. Sparse tables keep their own update, as in Paddle.
The numbers are the same. Paddle's name for it is `fuse_all_optimizer_ops`.
"""

# SPDX-License-Identifier: Apache-2.0
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import fx
from torch._ops import OpOverload

from argosy.engine.ir.effects import changed_inputs, storage
from argosy.engine.ops.all_reduce import wait
from argosy.engine.ops.flat_gradients import gradient_of
from argosy.engine.ops.fused_updates import FUSED
from argosy.engine.passes.base import Pass, Report

Group = list[fx.Node]
"""Updates that become one node, in order."""


@dataclass(frozen=True)
class FuseOptimizer(Pass):
    """See the module's picture. Runs behind fuse_all_reduce. A sparse table has `is_table` in its meta."""

    name: ClassVar[str] = "fuse_optimizer"

    def run(self, graph: fx.Graph) -> Report:
        found = [n for n in graph.nodes if n.target in FUSED]
        dense = [n for n in found if not n.args[0].meta.get("is_table")]
        groups, obstacles = _groups(graph, dense)
        fused = [group for group in groups if len(group) > 1]
        said = tuple(_said(found, dense, fused))
        for group in fused:
            _fuse(graph, group)
        changed = sum(map(len, fused))
        text = (
            f"{changed} of {len(found)} updates in {len(fused)} fused"
            if found
            else "no update that can be fused"
        )
        left = [f"{len(found) - len(dense)} of sparse tables"] if len(dense) < len(found) else []
        if changed < len(dense):
            left.append(f"{len(dense) - changed} that have no other to go with")
        text += f"; left alone: {', '.join(left)}" if left else ""
        return Report(changed, text + "".join(f"; {obstacle}" for obstacle in obstacles[:3]), said)


def _said(found: Sequence[fx.Node], dense: Sequence[fx.Node], fused: Sequence[Group]) -> Iterator[str]:
    """Paddle's words, for each kind of update."""
    everyone, alike = (Counter(n.target._opname for n in nodes) for nodes in (found, dense))  # type: ignore[union-attr]
    for name in {group[0].target._opname: None for group in fused}:  # type: ignore[union-attr]
        yield (
            f"Find {name} operators : {everyone[name]}, and {alike[name]} for dense gradients. To make the speed "
            "faster, those optimization are fused during training."
        )


# --- which updates go together ------------------------------------------------------------------------


def _groups(graph: fx.Graph, updates: Sequence[fx.Node]) -> tuple[list[Group], list[str]]:
    """The updates in groups, each of which may move to its last one's place; and what kept some apart, in words."""
    exchanges = _exchanges(graph)
    key_of = {node: (*_common(node), exchanges.get(node, frozenset())) for node in updates}
    growing: dict[tuple[Any, ...], _Moving] = {}
    stopped: dict[tuple[Any, ...], str] = {}
    done: list[Group] = []
    obstacles = []
    for node in graph.nodes:
        for other, moving in list(growing.items()):
            if moving.is_disturbed_by(node):
                stopped[other] = f"{node.name} stands between {moving.group[0].name} and "
                done.append(growing.pop(other).group)
        if node in key_of:
            key = key_of[node]
            if key in stopped:
                obstacles.append(stopped.pop(key) + node.name)
            growing.setdefault(key, _Moving()).add(node)
    return done + [moving.group for moving in growing.values()], obstacles


class _Moving:
    """A group so far, and the memory that its updates read and change."""

    def __init__(self) -> None:
        self.group: Group = []
        self.read: set[int | None] = set()
        self.changed: set[int | None] = set()

    def add(self, node: fx.Node) -> None:
        self.group.append(node)
        self.changed |= set(map(storage, changed_inputs(node)))
        self.read |= set(map(storage, node.all_input_nodes))

    def is_disturbed_by(self, node: fx.Node) -> bool:
        """True if the group cannot move behind the node."""
        if any(storage(source) in self.changed for source in node.all_input_nodes):
            return True
        return any(storage(source) in self.read for source in changed_inputs(node))


def _common(node: fx.Node) -> tuple[Any, ...]:
    """What all updates of a group have in common."""
    arguments = _arguments(node)
    value = arguments[0][0].meta["val"]  # the parameter
    missing = tuple(one is None for one, _ in arguments)  # with a master weight or without
    return (
        node.target,
        value.dtype,
        value.device,
        missing,
        *(one for one, is_list in arguments if not is_list),
    )


def _arguments(node: fx.Node) -> list[tuple[Any, bool]]:
    """Each argument, None if it is left out, and whether it is a list in the fused op."""
    assert isinstance(node.target, OpOverload), f"{node.name} calls {node.target!r}"
    own, fused = (op._schema.arguments for op in (node.target, FUSED[node.target]))
    rest = [node.kwargs.get(argument.name) for argument in own[len(node.args) :]]
    return [(one, "List" in str(a.type)) for one, a in zip((*node.args, *rest), fused, strict=True)]


def _exchanges(graph: fx.Graph) -> dict[fx.Node, frozenset[fx.Node]]:
    """For each node of the optimizer the exchanges of several gradients that it waits for, be it through others."""
    parts = defaultdict(list)
    for node in graph.nodes:
        if node.target is gradient_of:
            parts[node.args[0]].append(node)
    if all(
        len(slices) == 1 for slices in parts.values()
    ):  # each gradient travels alone: there are no groups to wait for
        return {}
    found: dict[fx.Node, frozenset[fx.Node]] = {}
    for node in graph.nodes:
        if node.target is wait:
            found[node] = frozenset({node} if node in parts else ())
        elif node.meta["role"] in ("optimize", "communicate"):
            found[node] = frozenset().union(*(found.get(source, ()) for source in node.all_input_nodes))
    return found


# --- the rewrite --------------------------------------------------------------------------------------


def _fuse(graph: fx.Graph, group: Group) -> None:
    first, last = group[0], group[-1]
    target = FUSED[first.target]  # type: ignore[index]  # an op
    with graph.inserting_before(last):
        made = graph.create_node("call_function", target, tuple(_listed(group)), {}, target._opname)
    made.meta = {"role": first.meta["role"], "source": first.meta.get("source"), "val": None}
    for node in group:
        graph.erase_node(node)


def _listed(group: Group) -> Iterator[Any]:
    """The arguments of the fused node."""
    for column in zip(*map(_arguments, group), strict=True):
        one, is_list = column[0]
        yield [value for value, _ in column if value is not None] if is_list else one

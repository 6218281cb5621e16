"""Assign each parameter to one rank, its owner, which updates it and broadcasts the result.

    before    s = all_reduce(g, 'dp', 'w@GRAD')
              r = wait(s)
              momentum(w, r, v, …)
    after     s = reduce(g, 1, 'dp', 'w@GRAD')
              r = wait(s)                               the sum, on rank 1
              momentum(w, r, v, …)                      on rank 1
              updated_by_owner([w, v], [r], 1)          on the others
              …
              broadcast(w, 1, 'dp', 'w')                at the end

Gradients are assigned in the order of backward, each to the rank with the fewest elements so far, as in Paddle. The
programs of the ranks differ only in the update nodes, so all ranks run the same collectives. Only the owner's
optimizer state is valid: `owners` returns the owner of each variable. A gradient that is reduced already
(gather_sparse_gradients) has no owner. Paddle's name for it is `ReduceStrategy.Reduce`.
"""

# SPDX-License-Identifier: Apache-2.0
import operator
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from torch import fx

from argosy.engine.errors import ConfigError
from argosy.engine.ir.effects import mutated_inputs, storage
from argosy.engine.ir.infer import infer
from argosy.engine.ir.periods import inherited
from argosy.engine.ir.program import Program
from argosy.engine.ir.verify import describe
from argosy.engine.ops.collectives import all_reduce, broadcast, reduce, updated_by_owner, wait
from argosy.engine.passes.base import Pass, Report, new_collectives

_OWNER = "owner"
"""In the meta of a variable's placeholder: which rank updates it. It is copied and saved with the program."""
Nodes = dict[fx.Node, None]
"""An ordered set of nodes."""


@dataclass(frozen=True)
class ReduceToOwner(Pass):
    """See the module's picture. Runs after insert_all_reduce."""

    name: ClassVar[str] = "reduce_to_owner"

    parameters: tuple[tuple[str, fx.Node, str], ...]
    """(name, placeholder, name of the gradient) of each."""
    rank: int
    ranks: int
    groups: tuple[str, ...] = ("dp",)
    """The communicators: gradient i uses number i % len(groups); parameters use the first."""

    def run(self, graph: fx.Graph) -> Report:
        starts = _in_order(graph)
        if not starts:
            return Report(0, "no all_reduce")
        load = [0] * self.ranks
        known = {grad: node.meta[_OWNER] for _, node, grad in self.parameters if _OWNER in node.meta}
        owner_of: dict[fx.Node, int] = {}
        for number, start in enumerate(starts):
            gradient, _, what = start.args
            owner = known.get(str(what), load.index(min(load)))
            load[owner] += start.meta["val"].numel()
            start.target, start.args = reduce, (gradient, owner, self.groups[number % len(self.groups)], what)
            start._rename("reduce")
            (arrived,) = [user for user in start.users if user.target is wait]
            owner_of[arrived] = owner
        updated = self._split_updates(graph, owner_of)
        sent = [(name, node) for name, node, _ in self.parameters if node in updated]
        for name, node in sent:
            _broadcast(graph, name, node, self.groups[0])
        sizes = ", ".join(map(str, load))
        mine = sum(node.meta[_OWNER] == self.rank for _, node in sent)
        text = f"{len(starts)} gradients to {self.ranks} ranks, {sizes} elements; "
        return Report(len(starts), text + f"rank {self.rank} updates {mine} of {len(sent)} parameters")

    def _split_updates(self, graph: fx.Graph, owner_of: Mapping[fx.Node, int]) -> Nodes:
        """Erase the updates of other ranks; returns the variables of the scope that have an owner now."""
        states = {storage(node): node for node in graph.find_nodes(op="placeholder")}
        updated: Nodes = {}
        remote_updates = []
        for node, sums in _dependents(graph, owner_of).items():
            owner = _only_owner(node, sums, owner_of)
            mutated = [states[s] for s in map(storage, mutated_inputs(node)) if s in states]
            for state in mutated:
                state.meta[_OWNER] = owner
            updated.update(dict.fromkeys(mutated))
            if owner != self.rank and node.meta["role"] == "optimize":
                remote_updates.append(node)
                if mutated:
                    _mark_remote_update(graph, node, mutated, sums, owner)
        for node in reversed(remote_updates):
            graph.erase_node(node)
        return updated


def owners(program: Program) -> dict[str, int]:
    """The owner of each variable of the scope that only one rank updates; the others have no entry."""
    placeholders = program.recorder.placeholder_of
    nodes = {name: placeholders.get(v.value) for name, v in program.persistables().items()}
    return {name: node.meta[_OWNER] for name, node in nodes.items() if node and _OWNER in node.meta}


def is_divided(program: Program) -> bool:
    """True if the program updates only the parameters that this rank owns."""
    return bool(program.graph.find_nodes(op="call_function", target=reduce))


def _in_order(graph: fx.Graph) -> list[fx.Node]:
    """The all_reduce nodes in the order of backward; of one op's gradients the last first, as in Paddle."""
    place = {node: number for number, node in enumerate(graph.nodes)}

    def key(start: fx.Node) -> tuple[int, int]:
        gradient = start.all_input_nodes[0]
        if gradient.meta["role"] == "communicate":  # a copy of it
            gradient = gradient.all_input_nodes[0]
        if gradient.target is operator.getitem:
            producer, index = cast("tuple[fx.Node, int]", gradient.args)
            return place[producer], -index
        return place[gradient], 0

    return sorted(new_collectives(graph, all_reduce), key=key)


def _dependents(graph: fx.Graph, sums: Mapping[fx.Node, int]) -> dict[fx.Node, Nodes]:
    """The nodes that depend on sums, directly or through mutated memory, each with those sums."""
    sums_of: dict[fx.Node, Nodes] = {}
    mutated: dict[int | None, Nodes] = defaultdict(dict)
    for node in graph.nodes:
        if node in sums:
            sums_of[node] = {node: None}
            continue
        inputs: Nodes = {}
        for source in node.all_input_nodes:
            inputs |= sums_of.get(source, {}) | mutated.get(storage(source), {})
        if inputs:
            sums_of[node] = inputs
            for source in mutated_inputs(node):
                mutated[storage(source)] |= inputs
    return {node: inputs for node, inputs in sums_of.items() if node not in sums}


def _only_owner(node: fx.Node, sums: Nodes, owner_of: Mapping[fx.Node, int]) -> int:
    """The rank that owns all sums that a node depends on; raises ConfigError if they have several owners."""
    by_owner = {owner_of[arrived]: str(arrived.all_input_nodes[0].args[-1]) for arrived in reversed(sums)}
    before = [state for state in mutated_inputs(node) if _OWNER in state.meta]
    by_owner = {state.meta[_OWNER]: state.name for state in before} | by_owner
    if len(by_owner) > 1:
        which = " and ".join(f"{name} (rank {owner})" for owner, name in sorted(by_owner.items())[:2])
        raise ConfigError(
            f"{describe(node)} depends on {which}, and under ReduceStrategy.Reduce a rank has only the gradients of "
            "the parameters that it owns; clipping by the global norm, for one, needs all of them: use "
            "ReduceStrategy.AllReduce, or clip each gradient by itself (ClipGradByNorm, ClipGradByValue)"
        )
    return next(iter(by_owner))


def _mark_remote_update(
    graph: fx.Graph, update: fx.Node, states: list[fx.Node], sums: Nodes, owner: int
) -> None:
    """Insert updated_by_owner before an update of another rank."""
    with graph.inserting_before(update):
        args = (states, list(sums), owner)
        marker = graph.create_node("call_function", updated_by_owner, args, {}, "updated_by_owner")
    marker.meta = {
        "role": "optimize",
        "source": update.meta.get("source"),
        "val": None,
        **inherited(update),
    }


def _broadcast(graph: fx.Graph, name: str, parameter: fx.Node, group: str) -> None:
    args, period = (parameter, parameter.meta[_OWNER], group, name), _period(graph, parameter)
    sent = graph.create_node("call_function", broadcast, args, {}, "broadcast")
    sent.meta = {"role": "communicate", "source": parameter.meta.get("source"), **period}
    if not period:  # else later readers of the parameter would run in its period only
        sent.meta["replaces"] = parameter
    sent.meta["val"] = infer(sent)


def _period(graph: fx.Graph, parameter: fx.Node) -> dict[str, Any]:
    """The period of a parameter's updates; none if they are in different ones."""
    updates = [n for n in graph.nodes if parameter in mutated_inputs(n) and n.meta["role"] == "optimize"]
    first = inherited(updates[0]) if updates else {}
    return first if all(inherited(update) == first for update in updates) else {}

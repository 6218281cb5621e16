"""Run an addition and the activation before or behind it as one kernel, and the gradient of that as another.

    before    y = relu(add(a, b))                            after    y = add_act(a, b, 'relu')
    before    y = gelu(s = add(a, b)), backward reads s      after    y, s = add_act_keep(a, b, 'gelu')
    before    y = add(a, relu(b))                            after    y = act_add(a, b, 'relu')
    before    g = threshold_backward(add(dy1, dy2), y)       after    g = act_backward(dy1, dy2, y, 'relu')

relu, tanh, sigmoid, silu, gelu, and a multiplication by a number, which Paddle calls scale. What lies between the two
must have no other reader. b may be as large as a, or lack leading dimensions, as a bias does. The two gradients of
a value that is read twice are added on the way. Paddle's name for it is `fuse_elewise_add_act_ops`.
"""

# SPDX-License-Identifier: Apache-2.0
import operator
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import fx

from argosy.engine.ir.infer import infer
from argosy.engine.ops.activation import Activation, activation_of, derivative_of
from argosy.engine.ops.add_act import act_add, act_backward, add_act, add_act_keep
from argosy.engine.passes.base import Report
from argosy.engine.passes.fusion import (
    Fusion,
    Tally,
    are_alike,
    are_changed_between,
    drop,
    is_bias_of,
    suits_kernels,
    two_gradients,
)

aten = torch.ops.aten
_MULTIPLICATIONS = (aten.mul.Tensor, aten.mul.Scalar)


@dataclass(frozen=True)
class FuseElewiseAddAct(Fusion):
    """See the module's picture."""

    name: ClassVar[str] = "fuse_elewise_add_act"

    def fuse(self, graph: fx.Graph) -> Report:
        before, behind, backward = (
            Tally("additions behind an activation"),
            Tally("additions before an activation"),
            Tally("of their backwards"),
        )
        additions = graph.find_nodes(op="call_function", target=aten.add.Tensor)
        for add in [n for n in additions if n.meta["role"] == "forward"]:
            if (found := _activation_before(add)) is not None:
                self._try(graph, before, add, found, _put_before)
        for add in graph.find_nodes(op="call_function", target=aten.add.Tensor):
            if (act := _activation_behind(add)) is not None and add.meta["role"] == "forward":
                self._try(graph, behind, add, act, _put_behind)
        for node in list(graph.nodes):
            if (name := derivative_of(node)) is not None and _is_fused(node.args[1]):
                reason = suits_kernels(node.args[:2])
                backward.note(node, reason)
                if not reason:
                    _fuse_backward(graph, node, name, self.kept)
        return self.report(before, behind, backward)

    def _try(self, graph: fx.Graph, tally: Tally, add: fx.Node, act: fx.Node, put: Any) -> None:
        between = act if put is _put_before else add
        reason = self._obstacle(add, act, between)
        tally.note(add, reason)
        if not reason:
            put(graph, add, act)

    def _obstacle(self, add: fx.Node, act: fx.Node, between: fx.Node) -> str:
        """Why the two stay apart; "" if nothing speaks against it."""
        name, _ = cast("tuple[str, float]", _named(act))
        if between in self.kept:
            return "the value in between is fetched"
        own = _derivatives(between, name) if between is add and Activation.known[name].from_input else []
        others = [n for n in between.users if n not in (add, act, *own)]
        if others:
            return f"{others[0].name} reads the value in between too"
        if add.kwargs or not all(isinstance(a, fx.Node) for a in add.args):
            return "it adds a number or a multiple"
        moves = (act, add, act.args[:1]) if between is act else (add, act, add.args)
        if not own and are_changed_between(*moves):
            return "what goes in is changed before"
        a, b = _summands(add, act if between is act else None)
        if not are_alike(a, add) or not (are_alike(b, add) or is_bias_of(b, a)):
            return "its shapes are spread in another way"
        return suits_kernels((a, b))


# --- finding ------------------------------------------------------------------------------------------


def _named(node: fx.Node) -> tuple[str, float] | None:
    """The activation's name and factor; None if the node is none."""
    if (name := activation_of(node)) is not None:
        return name, 1.0
    if node.target in _MULTIPLICATIONS and isinstance(node.args[1], int | float):
        return "scale", float(node.args[1])
    return None


def _activation_behind(add: fx.Node) -> fx.Node | None:
    return next((user for user in add.users if _named(user) is not None and user.args[0] is add), None)


def _activation_before(add: fx.Node) -> fx.Node | None:
    """An activation that this addition alone reads; the second summand first."""
    for source in add.args[1::-1]:
        is_single = (
            isinstance(source, fx.Node) and list(source.users) == [add] and add.args[0] is not add.args[1]
        )
        if isinstance(source, fx.Node) and is_single and _named(source) is not None:
            return source
    return None


def _derivatives(reference: fx.Node, name: str) -> list[fx.Node]:
    return [n for n in reference.users if derivative_of(n) == name and n.args[1] is reference]


def _summands(add: fx.Node, act: fx.Node | None) -> tuple[fx.Node, fx.Node]:
    """a and b of add_act, or of act_add if the activation comes first; a is the larger one."""
    a, b = cast("tuple[fx.Node, fx.Node]", add.args)
    if act is not None:
        return (b, a) if act is a else (a, b)
    return (b, a) if not are_alike(a, add) and are_alike(b, add) else (a, b)


def _is_fused(reference: Any) -> bool:
    """True for a value that a fused addition gave."""
    source = reference.args[0] if reference.target is operator.getitem else reference
    return source.target in (add_act, add_act_keep)


# --- rewriting ----------------------------------------------------------------------------------------


def _put_before(graph: fx.Graph, add: fx.Node, act: fx.Node) -> None:
    """add(a, act(b)) becomes one node, which is the addition's."""
    a, _ = _summands(add, act)
    name, scale = cast("tuple[str, float]", _named(act))
    add.target, add.args = act_add, (a, act.args[0], name, scale)
    add._rename("act_add")
    graph.erase_node(act)


def _put_behind(graph: fx.Graph, add: fx.Node, act: fx.Node) -> None:
    """act(add(a, b)) becomes one node, which is the activation's; or the addition's, if it has two results."""
    name, scale = cast("tuple[str, float]", _named(act))
    arguments = (*_summands(add, None), name, scale)
    derivatives = _derivatives(add, name) if Activation.known[name].from_input else []
    if not derivatives:
        act.target, act.args, act.kwargs = add_act, arguments, {}
        act._rename("add_act")
        graph.erase_node(add)
        return
    add.target, add.args = add_act_keep, arguments
    add._rename("add_act_keep")
    total = add.meta["val"]
    add.meta["val"] = (act.meta["val"], total)
    with graph.inserting_after(add):
        kept = graph.call_function(operator.getitem, (add, 1))
    kept.meta = {**add.meta, "val": total}
    for derivative in derivatives:
        derivative.update_arg(1, kept)
    act.target, act.args, act.kwargs = operator.getitem, (add, 0), {}


def _fuse_backward(graph: fx.Graph, node: fx.Node, name: str, kept: frozenset[fx.Node]) -> None:
    gradient, reference = cast("tuple[fx.Node, fx.Node]", node.args[:2])
    node.target, node.kwargs = act_backward, {}
    node.args = (*two_gradients(gradient, kept), reference, name, 1.0)
    node._rename("act_backward")
    node.meta["val"] = infer(node)
    drop(graph, gradient)

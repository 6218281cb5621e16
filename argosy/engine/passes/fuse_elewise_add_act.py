"""Fuse an addition with the activation before or after it, and their backwards likewise.

    before    y = relu(add(a, b))                            after    y = add_act(a, b, 'relu')
    before    y = gelu(s = add(a, b)), backward reads s      after    y, s = add_act_keep(a, b, 'gelu')
    before    y = add(a, relu(b))                            after    y = act_add(a, b, 'relu')
    before    g = threshold_backward(add(dy1, dy2), y)       after    g = act_backward(dy1, dy2, y, 'relu')

Activations are relu, tanh, sigmoid, silu, gelu, and a multiplication by a number, which Paddle calls scale. The
intermediate value must have no other reader. b has the shape of a, or lacks leading dimensions, as a bias does. The
sum of two gradients, as of a value with two readers, is fused into the backward. Paddle's name for it is
`fuse_elewise_add_act_ops`.
"""

# SPDX-License-Identifier: Apache-2.0
import operator
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import fx

from argosy.engine.ops.activation import Activation, activation_of, derivative_of
from argosy.engine.ops.add_act import act_add, act_backward, add_act, add_act_keep
from argosy.engine.passes.base import Report
from argosy.engine.passes.fusion import (
    Fusion,
    Tally,
    are_mutated_between,
    erase_dead_sum,
    erase_stored,
    is_bias_of,
    kernel_obstacle,
    same_shape_and_dtype,
    split_sum,
)

aten = torch.ops.aten
_MULTIPLICATIONS = (aten.mul.Tensor, aten.mul.Scalar)


@dataclass(frozen=True)
class FuseElewiseAddAct(Fusion):
    """See the module's picture."""

    name: ClassVar[str] = "fuse_elewise_add_act"
    keeps_strides: ClassVar[bool] = False

    def fuse(self, graph: fx.Graph) -> Report:
        before, after, backward = (
            Tally("additions after an activation"),
            Tally("additions before an activation"),
            Tally("of their backwards"),
        )
        additions = graph.find_nodes(op="call_function", target=aten.add.Tensor)
        for add in [n for n in additions if n.meta["role"] == "forward"]:
            if (act := _activation_before(add)) is not None:
                self._try(graph, before, add, act, _fuse_act_add)
        for add in graph.find_nodes(op="call_function", target=aten.add.Tensor):
            if (act := _activation_after(add)) is not None and add.meta["role"] == "forward":
                self._try(graph, after, add, act, _fuse_add_act)
        for node in list(graph.nodes):
            if (name := derivative_of(node)) is not None and _is_fused(node.args[1]):
                reason = kernel_obstacle(node.args[:2])
                backward.count(node, reason)
                if not reason:
                    _fuse_backward(graph, node, name, self.live_out)
        return self.report(before, after, backward)

    def _try(self, graph: fx.Graph, tally: Tally, add: fx.Node, act: fx.Node, fuse: Any) -> None:
        intermediate = act if fuse is _fuse_act_add else add
        reason = self._obstacle(add, act, intermediate)
        tally.count(add, reason)
        if not reason:
            fuse(graph, add, act)

    def _obstacle(self, add: fx.Node, act: fx.Node, intermediate: fx.Node) -> str:
        """Why the two cannot be fused; "" if they can."""
        name, _ = cast("tuple[str, float]", _named(act))
        if intermediate in self.live_out:
            return "the intermediate value is fetched"
        reads_sum = intermediate is add and Activation.known[name].from_input
        derivatives = _derivatives(intermediate, name) if reads_sum else []
        others = [n for n in intermediate.users if n not in (add, act, *derivatives)]
        if others:
            return f"{others[0].name} reads the intermediate value too"
        if add.kwargs or not all(isinstance(a, fx.Node) for a in add.args):
            return "it adds a number or a multiple"
        moves = (act, add, act.args[:1]) if intermediate is act else (add, act, add.args)
        if not derivatives and are_mutated_between(*moves):
            return "an input is mutated in between"
        a, b = _summands(add, act if intermediate is act else None)
        if not same_shape_and_dtype(a, add) or not (same_shape_and_dtype(b, add) or is_bias_of(b, a)):
            return "its shapes broadcast in an unsupported way"
        return kernel_obstacle((a, b))


# --- matching -----------------------------------------------------------------------------------------


def _named(node: fx.Node) -> tuple[str, float] | None:
    """The activation's name and factor; None if the node is no activation."""
    if (name := activation_of(node)) is not None:
        return name, 1.0
    if node.target in _MULTIPLICATIONS and isinstance(node.args[1], int | float):
        return "scale", float(node.args[1])
    return None


def _activation_after(add: fx.Node) -> fx.Node | None:
    return next((user for user in add.users if _named(user) is not None and user.args[0] is add), None)


def _activation_before(add: fx.Node) -> fx.Node | None:
    """An activation whose only reader is this addition; the second summand is tried first."""
    for source in add.args[1::-1]:
        has_one_reader = (
            isinstance(source, fx.Node) and list(source.users) == [add] and add.args[0] is not add.args[1]
        )
        if isinstance(source, fx.Node) and has_one_reader and _named(source) is not None:
            return source
    return None


def _derivatives(reference: fx.Node, name: str) -> list[fx.Node]:
    return [n for n in reference.users if derivative_of(n) == name and n.args[1] is reference]


def _summands(add: fx.Node, act: fx.Node | None) -> tuple[fx.Node, fx.Node]:
    """a and b of add_act, or of act_add if the activation comes first; a is the larger one."""
    a, b = cast("tuple[fx.Node, fx.Node]", add.args)
    if act is not None:
        return (b, a) if act is a else (a, b)
    return (b, a) if not same_shape_and_dtype(a, add) and same_shape_and_dtype(b, add) else (a, b)


def _is_fused(reference: Any) -> bool:
    """True for the result of a fused addition."""
    source = reference.args[0] if reference.target is operator.getitem else reference
    return source.target in (add_act, add_act_keep)


# --- rewriting ----------------------------------------------------------------------------------------


def _fuse_act_add(graph: fx.Graph, add: fx.Node, act: fx.Node) -> None:
    """Rewrite add(a, act(b)) to act_add, in the addition's node."""
    a, _ = _summands(add, act)
    name, scale = cast("tuple[str, float]", _named(act))
    add.target, add.args = act_add, (a, act.args[0], name, scale)
    add._rename("act_add")
    erase_stored(graph, act, add)


def _fuse_add_act(graph: fx.Graph, add: fx.Node, act: fx.Node) -> None:
    """Rewrite act(add(a, b)) to add_act in the activation's node, or to add_act_keep in the addition's."""
    name, scale = cast("tuple[str, float]", _named(act))
    arguments = (*_summands(add, None), name, scale)
    derivatives = _derivatives(add, name) if Activation.known[name].from_input else []
    if not derivatives:
        act.target, act.args, act.kwargs = add_act, arguments, {}
        act._rename("add_act")
        erase_stored(graph, add, act)
        return
    add.target, add.args = add_act_keep, arguments
    add._rename("add_act_keep")
    total = add.meta["val"]
    add.meta["val"] = (act.meta["val"], total)
    with graph.inserting_after(add):
        saved_sum = graph.call_function(operator.getitem, (add, 1))
    saved_sum.meta = {**add.meta, "val": total}
    for derivative in derivatives:
        derivative.update_arg(1, saved_sum)
    act.target, act.args, act.kwargs = operator.getitem, (add, 0), {}


def _fuse_backward(graph: fx.Graph, node: fx.Node, name: str, live_out: frozenset[fx.Node]) -> None:
    gradient, reference = cast("tuple[fx.Node, fx.Node]", node.args[:2])
    node.target, node.kwargs = act_backward, {}
    node.args = (*split_sum(gradient, live_out), reference, name, 1.0)
    node._rename("act_backward")
    erase_dead_sum(graph, gradient)

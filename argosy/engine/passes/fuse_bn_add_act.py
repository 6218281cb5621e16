"""Run a batch norm, what is added to it, and the relu behind the sum as one kernel, forward and backward.

    before    t, mean, invstd = native_batch_norm(x, w, b)
              y = relu(add(other, t))
              g = threshold_backward(add(dy1, dy2), y)                       g is the gradient of `other`, too
              dx, dw, db = native_batch_norm_backward(g, x, w, mean, invstd)
    after     y, mean, invstd = bn_act(x, w, b, other, eps, 'relu')
              dx, dw, db, g = bn_act_backward(dy1, dy2, x, y, w, b, mean, invstd, 'relu')

Of two norms that are added, the later one is taken. Where this pass and fuse_elewise_add_act are both asked for, this
one runs first and wins. Paddle's name for it is `fuse_bn_add_act_ops`; it is on by default there, but does
nothing without a GPU, half precision and NHWC. Here it runs if it is asked for.
"""

# SPDX-License-Identifier: Apache-2.0
import operator
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import torch
from torch import fx

from argosy.engine.ops.activation import derivative_of
from argosy.engine.ops.bn_act import bn_act, bn_act_backward
from argosy.engine.passes.base import Report
from argosy.engine.passes.fusion import (
    Fusion,
    Tally,
    are_alike,
    are_changed_between,
    drop,
    items_of,
    suits_kernels,
    two_gradients,
)

aten = torch.ops.aten
_TRAINING = 5  # argument of native_batch_norm


@dataclass(frozen=True)
class Found:
    """norm -> out -> add(out, other) -> relu"""

    norm: fx.Node
    out: fx.Node
    add: fx.Node
    relu: fx.Node
    other: fx.Node


@dataclass(frozen=True)
class FuseBnAddAct(Fusion):
    """See the module's picture."""

    name: ClassVar[str] = "fuse_bn_add_act"

    has_rival: bool = False
    """True: fuse_elewise_add_act was asked for, too, and wants the same sums."""

    def fuse(self, graph: fx.Graph) -> Report:
        forward, backward = Tally("sums of a batch norm with a relu behind"), Tally("of their backwards")
        place = {node: number for number, node in enumerate(graph.nodes)}
        for relu in graph.find_nodes(op="call_function", target=aten.relu.default):
            found, reason = self._found(relu, place)
            if found is None and not reason:
                continue  # no batch norm in sight
            forward.note(relu, reason)
            if found is None:
                continue
            for derivative in [n for n in relu.users if derivative_of(n) == "relu" and n.args[1] is relu]:
                back, reason = _backward_of(found.norm, derivative)
                backward.note(derivative, reason)
                if back is not None:
                    _fuse_backward(graph, found, derivative, back, self.kept)
            _fuse_forward(graph, found)
        report = self.report(forward, backward)
        if self.has_rival and forward.fused:
            won = f"{forward.fused} sums go to fuse_bn_add_act, which runs before fuse_elewise_add_act"
            report = replace(report, said=(*report.said, won))
        return report

    def _found(self, relu: fx.Node, place: dict[fx.Node, int]) -> tuple[Found | None, str]:
        """What the relu follows; None and why if it is not to be fused, "" if there is no norm at all."""
        add = cast("fx.Node", relu.args[0])
        if add.target is not aten.add.Tensor or add.kwargs:
            return None, ""
        norms = [n for n in add.all_input_nodes if _is_norm(n)]
        if not norms:
            return None, ""
        if len(add.users) > 1:
            return None, "the sum has other readers"
        out = max(norms, key=lambda n: place[cast("fx.Node", n.args[0])])
        norm = cast("fx.Node", out.args[0])
        others = [n for n in add.args if n is not out]
        if len(others) != 1 or not isinstance(others[0], fx.Node):
            return None, "it is added to itself or to a number"
        found = Found(norm, out, add, relu, others[0])
        return (None, reason) if (reason := self._obstacle(found, place)) else (found, "")

    def _obstacle(self, found: Found, place: dict[fx.Node, int]) -> str:
        if len(found.out.users) > 1:
            return "the norm has other readers"
        if found.out in self.kept or found.add in self.kept:
            return "a value in between is fetched"
        if place[found.other] > place[found.norm]:
            return "what is added comes later than the norm"
        if are_changed_between(found.norm, found.add, (found.other,)):
            return "what is added is changed before"
        if not are_alike(found.other, found.out):
            return "what is added has another shape"
        return suits_kernels((*found.norm.args[:3], found.other))


def _is_norm(node: fx.Node) -> bool:
    """True for the first result of a batch norm that trains."""
    if node.target is not operator.getitem or node.args[1] != 0:
        return False
    norm = cast("fx.Node", node.args[0])
    return norm.target is aten.native_batch_norm.default and bool(norm.args[_TRAINING])


def _backward_of(norm: fx.Node, derivative: fx.Node) -> tuple[fx.Node | None, str]:
    """The norm's backward that reads the derivative, or why there is none."""
    items = items_of(norm)
    for user in derivative.users:
        if user.target is aten.native_batch_norm_backward.default and user.args[0] is derivative:
            _, x, weight, _, _, mean, invstd, *_ = user.args
            if (x, weight, mean, invstd) == (*norm.args[:2], items.get(1), items.get(2)):
                changed = are_changed_between(norm, user, norm.args[:3])
                return (None, "its weights are changed before") if changed else (user, "")
    return None, "no batch norm follows"


def _fuse_backward(
    graph: fx.Graph, found: Found, derivative: fx.Node, back: fx.Node, kept: frozenset[fx.Node]
) -> None:
    """One node where the derivative stands, whose node becomes the fourth result."""
    gradient = cast("fx.Node", derivative.args[0])
    dy, more = two_gradients(gradient, kept)
    _, x, weight, _, _, mean, invstd, _, _, mask = back.args
    derivative.prepend(back)
    back.target = bn_act_backward
    states = (weight, found.norm.args[2], mean, invstd)
    back.args = (dy, more, x, found.relu, *states, "relu", mask)
    back._rename("bn_add_act_backward")
    back.meta["val"] = (*back.meta["val"], derivative.meta["val"])
    derivative.target, derivative.args, derivative.kwargs = operator.getitem, (back, 3), {}
    drop(graph, gradient)


def _fuse_forward(graph: fx.Graph, found: Found) -> None:
    """The relu's node becomes the first result of the norm's, so that whoever knows it finds it."""
    norm = found.norm
    x, weight, bias, *_, eps = norm.args
    norm.target, norm.args = bn_act, (x, weight, bias, found.other, eps, "relu")
    norm._rename("bn_add_act")
    norm.meta["val"] = (found.relu.meta["val"], *norm.meta["val"][1:])
    found.relu.target, found.relu.args = operator.getitem, (norm, 0)
    graph.erase_node(found.add)
    graph.erase_node(found.out)

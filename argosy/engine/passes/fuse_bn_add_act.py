"""Fuse a batch norm, an addition to its output and the relu of the sum, forward and backward.

    before    t, mean, invstd = native_batch_norm(x, w, b)
              y = relu(add(other, t))
              g = threshold_backward(add(dy1, dy2), y)                       g is the gradient of `other`, too
              dx, dw, db = native_batch_norm_backward(g, x, w, mean, invstd)
    after     y, mean, invstd = bn_act(x, w, b, other, eps, 'relu')
              dx, dw, db, g = bn_act_backward(dy1, dy2, x, y, w, b, mean, invstd, 'relu')

Of two norms that are added, the later one is fused. If fuse_elewise_add_act is enabled too, this pass runs first and
takes the additions that match both. Paddle's name for it is `fuse_bn_add_act_ops`; it is on by default there, but
does nothing without a GPU, half precision and NHWC. Here it is off by default.
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
    are_mutated_between,
    erase_dead_sum,
    erase_stored,
    getitems_of,
    kernel_obstacle,
    same_shape_and_dtype,
    split_sum,
)

aten = torch.ops.aten
_TRAINING = 5  # argument of native_batch_norm


@dataclass(frozen=True)
class BnAddReluMatch:
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
    keeps_strides: ClassVar[bool] = False

    has_rival: bool = False
    """True: fuse_elewise_add_act is enabled too, and matches the same additions."""

    def fuse(self, graph: fx.Graph) -> Report:
        forward, backward = Tally("batch norm + addition + relu"), Tally("of their backwards")
        place = {node: number for number, node in enumerate(graph.nodes)}
        for relu in graph.find_nodes(op="call_function", target=aten.relu.default):
            match, reason = self._match(relu, place)
            if match is None and not reason:
                continue  # no batch norm
            forward.count(relu, reason)
            if match is None:
                continue
            for derivative in [n for n in relu.users if derivative_of(n) == "relu" and n.args[1] is relu]:
                back, reason = _backward_of(match.norm, derivative)
                backward.count(derivative, reason)
                if back is not None:
                    _fuse_backward(graph, match, derivative, back, self.live_out)
            _fuse_forward(graph, match)
        report = self.report(forward, backward)
        if self.has_rival and forward.fused:
            notice = f"{forward.fused} sums go to fuse_bn_add_act, which runs before fuse_elewise_add_act"
            report = replace(report, notices=(*report.notices, notice))
        return report

    def _match(self, relu: fx.Node, place: dict[fx.Node, int]) -> tuple[BnAddReluMatch | None, str]:
        """The match that ends with the relu; None with the reason if it cannot be fused, "" if there is no norm."""
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
        match = BnAddReluMatch(norm, out, add, relu, others[0])
        return (None, reason) if (reason := self._obstacle(match, place)) else (match, "")

    def _obstacle(self, match: BnAddReluMatch, place: dict[fx.Node, int]) -> str:
        if len(match.out.users) > 1:
            return "the norm has other readers"
        if match.out in self.live_out or match.add in self.live_out:
            return "an intermediate value is fetched"
        if place[match.other] > place[match.norm]:
            return "the other summand is computed after the norm"
        if are_mutated_between(match.norm, match.add, (match.other,)):
            return "the other summand is mutated in between"
        if not same_shape_and_dtype(match.other, match.out):
            return "the other summand has another shape"
        return kernel_obstacle((match.norm.args[0], match.other), match.norm.args[1:3])


def _is_norm(node: fx.Node) -> bool:
    """True for the first output of a batch norm in training mode."""
    if node.target is not operator.getitem or node.args[1] != 0:
        return False
    norm = cast("fx.Node", node.args[0])
    return norm.target is aten.native_batch_norm.default and bool(norm.args[_TRAINING])


def _backward_of(norm: fx.Node, derivative: fx.Node) -> tuple[fx.Node | None, str]:
    """The norm's backward that reads the derivative, or why there is none."""
    items = getitems_of(norm)
    for user in derivative.users:
        if user.target is aten.native_batch_norm_backward.default and user.args[0] is derivative:
            _, x, weight, _, _, mean, invstd, *_ = user.args
            if (x, weight, mean, invstd) == (*norm.args[:2], items.get(1), items.get(2)):
                if are_mutated_between(norm, user, norm.args[:3]):
                    return None, "its weights are mutated in between"
                reason = kernel_obstacle((x, derivative.args[0]))
                return (None, reason) if reason else (user, "")
    return None, "no batch norm follows"


def _fuse_backward(
    graph: fx.Graph, match: BnAddReluMatch, derivative: fx.Node, back: fx.Node, live_out: frozenset[fx.Node]
) -> None:
    """Move the norm's backward to the derivative; the derivative's node becomes its getitem 3."""
    gradient = cast("fx.Node", derivative.args[0])
    dy, more = split_sum(gradient, live_out)
    _, x, weight, _, _, mean, invstd, _, _, mask = back.args
    derivative.prepend(back)
    back.target = bn_act_backward
    states = (weight, match.norm.args[2], mean, invstd)
    back.args = (dy, more, x, match.relu, *states, "relu", mask)
    back._rename("bn_add_act_backward")
    back.meta["val"] = (*back.meta["val"], derivative.meta["val"])
    derivative.target, derivative.args, derivative.kwargs = operator.getitem, (back, 3), {}
    erase_dead_sum(graph, gradient)


def _fuse_forward(graph: fx.Graph, match: BnAddReluMatch) -> None:
    """Rewrite the norm's node; the relu's node becomes its getitem 0, so that variables stay bound to it."""
    norm = match.norm
    x, weight, bias, *_, eps = norm.args
    norm.target, norm.args = bn_act, (x, weight, bias, match.other, eps, "relu")
    norm._rename("bn_add_act")
    norm.meta["val"] = (match.relu.meta["val"], *norm.meta["val"][1:])
    match.relu.target, match.relu.args = operator.getitem, (norm, 0)
    erase_stored(graph, match.add, match.relu)
    erase_stored(graph, match.out, match.relu)

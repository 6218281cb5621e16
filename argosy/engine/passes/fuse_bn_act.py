"""Fuse a batch norm with the activation after it, forward and backward.

    before    t, mean, invstd = native_batch_norm(x, w, b)        y = relu(t)
              g = threshold_backward(dy, y)
              dx, dw, db = native_batch_norm_backward(g, x, w, mean, invstd)
    after     y, mean, invstd = bn_act(x, w, b, None, eps, 'relu')
              dx, dw, db = bn_act_backward(dy, None, x, None, w, b, mean, invstd, 'relu')

Only norms in training mode whose output has no other reader than the activation match. Backward recomputes the
activation's mask from x. Paddle's name for it is `fuse_bn_act_ops`; there it needs a GPU, half precision and NHWC.
"""

# SPDX-License-Identifier: Apache-2.0
import operator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import fx

from argosy.engine.ops.activation import Activation, activation_of, derivative_of
from argosy.engine.ops.bn_act import ACTIVATIONS, bn_act, bn_act_backward
from argosy.engine.passes.base import Report
from argosy.engine.passes.fusion import (
    Fusion,
    Tally,
    are_mutated_between,
    erase_stored,
    getitems_of,
    kernel_obstacle,
)

aten = torch.ops.aten
_TRAINING = 5  # argument of native_batch_norm


@dataclass(frozen=True)
class FuseBnAct(Fusion):
    """See the module's picture."""

    name: ClassVar[str] = "fuse_bn_act"
    keeps_strides: ClassVar[bool] = False

    def fuse(self, graph: fx.Graph) -> Report:
        forward, backward = Tally("batch norms"), Tally("of their backwards")
        for norm in graph.find_nodes(op="call_function", target=aten.native_batch_norm.default):
            if not norm.args[_TRAINING]:
                continue
            act, reason = self._activation(norm)
            forward.count(norm, reason)
            if act is None:
                continue
            name = str(activation_of(act))
            derivatives = _derivatives(norm, act)
            for derivative in derivatives:
                reason = self._obstacle(norm, derivative)
                backward.count(derivative, reason)
                if not reason:
                    _fuse_backward(graph, norm, derivative, name)
            _fuse_forward(graph, norm, act, name)
        return self.report(forward, backward)

    def _activation(self, norm: fx.Node) -> tuple[fx.Node | None, str]:
        """The activation to fuse the norm with, or why there is none."""
        out = getitems_of(norm).get(0)
        activations = [n for n in out.users if activation_of(n) in ACTIVATIONS] if out is not None else []
        if out is None or not activations:
            return None, "no activation follows"
        act, derivatives = activations[0], _derivatives(norm, activations[0])
        others = [n for n in out.users if n is not act and n not in derivatives]
        if others:
            return None, f"{others[0].name} reads the norm too"
        if out in self.live_out:
            return None, "its result is fetched"
        if reason := kernel_obstacle(norm.args[:1], norm.args[1:3]):
            return None, reason
        if Activation.known[str(activation_of(act))].from_input:
            obstacles = [reason for d in derivatives if (reason := self._obstacle(norm, d))]
            if obstacles:
                return None, f"backward needs its result: {obstacles[0]}"
        return act, ""

    def _obstacle(self, norm: fx.Node, derivative: fx.Node) -> str:
        """Why the derivative and the norm's backward cannot be fused; "" if they can."""
        readers, items = list(derivative.users), getitems_of(norm)
        if not readers or readers[0].target is not aten.native_batch_norm_backward.default:
            return "no batch norm follows"
        if len(readers) > 1:
            return f"{readers[1].name} reads the gradient too"
        if derivative in self.live_out:
            return "the intermediate gradient is fetched"
        gradient, x, weight, _, _, mean, invstd, *_ = readers[0].args
        wanted = (derivative, *norm.args[:2], items.get(1), items.get(2))
        if (gradient, x, weight, mean, invstd) != wanted:
            return f"{readers[0].name} belongs to another norm"
        if are_mutated_between(norm, readers[0], norm.args[:3]):
            return "its weights are mutated in between"
        return kernel_obstacle((x, derivative.args[0]))


def _derivatives(norm: fx.Node, act: fx.Node) -> list[fx.Node]:
    """The nodes that compute the activation's gradient, from its output or from its input."""
    name = str(activation_of(act))
    reference = getitems_of(norm)[0] if Activation.known[name].from_input else act
    return [n for n in reference.users if derivative_of(n) == name and n.args[1] is reference]


def _fuse_backward(graph: fx.Graph, norm: fx.Node, derivative: fx.Node, name: str) -> None:
    back = next(iter(derivative.users))
    _, x, weight, _, _, mean, invstd, _, _, mask = back.args
    back.target = bn_act_backward
    back.args = (derivative.args[0], None, x, None, weight, norm.args[2], mean, invstd, name, mask)
    back._rename("bn_act_backward")
    back.meta["val"] = (*back.meta["val"], None)
    graph.erase_node(derivative)


def _fuse_forward(graph: fx.Graph, norm: fx.Node, act: fx.Node, name: str) -> None:
    """Rewrite the norm's node; the activation's node becomes its getitem 0, so that variables stay bound to it."""
    x, weight, bias, *_, eps = norm.args
    out = getitems_of(norm)[0]
    norm.target, norm.args = bn_act, (x, weight, bias, None, eps, name)
    norm._rename("bn_act")
    norm.meta["val"] = (act.meta["val"], *norm.meta["val"][1:])
    act.target, act.args, act.kwargs = operator.getitem, (norm, 0), {}
    erase_stored(graph, out, act)

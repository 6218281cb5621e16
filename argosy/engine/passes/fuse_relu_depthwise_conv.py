"""Fuse a relu into the depthwise convolution that reads it.

    before    r = relu(x)                                y = convolution(r, w, groups=channels)
              g, dw = convolution_backward(dy, r, w)     dx = threshold_backward(g, r)
    after     y = relu_depthwise(x, w)
              dx, dw = relu_depthwise_backward(dy, x, w)

The relu's output is never materialized, and backward reads x and dy once for both gradients. Matches only if the
relu has no other reader, in float32 or bfloat16, with one filter per channel and no bias. Paddle's name is the same;
there it needs a GPU. As in Paddle, convolutions with and without backward are counted separately.
"""

# SPDX-License-Identifier: Apache-2.0
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import fx

from argosy.engine.ops.activation import derivative_of
from argosy.engine.ops.relu_depthwise import relu_depthwise, relu_depthwise_backward
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


@dataclass(frozen=True)
class ReluConvMatch:
    """relu -> conv; `backs` are the convolution's backwards, `derivatives` those of the relu that read them."""

    relu: fx.Node
    conv: fx.Node
    backs: Sequence[fx.Node]
    derivatives: Sequence[fx.Node]


@dataclass(frozen=True)
class FuseReluDepthwiseConv(Fusion):
    """See the module's picture."""

    name: ClassVar[str] = "fuse_relu_depthwise_conv"
    keeps_strides: ClassVar[bool] = False

    def fuse(self, graph: fx.Graph) -> Report:
        alone = Tally("relu + depthwise convolution without backward")
        trained = Tally("relu + depthwise convolution with backward")
        place = {node: number for number, node in enumerate(graph.nodes)}
        for relu in graph.find_nodes(op="call_function", target=aten.relu.default):
            match = _match(relu)
            if match is None:
                continue
            reason = _window_obstacle(match) or self._reader_obstacle(match, place)
            (trained if match.backs else alone).count(relu, reason)
            if not reason:
                _fuse(graph, match)
        return self.report(alone, trained)

    def _reader_obstacle(self, match: ReluConvMatch, place: dict[fx.Node, int]) -> str:
        """Which other node reads the relu's output, or its gradient; "" if none does."""
        fused = {match.conv, *match.backs, *match.derivatives}
        if others := [n for n in match.relu.users if n not in fused]:
            return f"{others[0].name} reads {match.relu.name} too"
        gradients = [getitems_of(back)[0] for back in match.backs if 0 in getitems_of(back)]
        if self.live_out.intersection((match.relu, *gradients)):
            return "its result or gradient is fetched"
        for gradient in gradients:
            if others := [n for n in gradient.users if n not in match.derivatives]:
                return f"{others[0].name} reads the gradient of {match.relu.name}"
        last = max(fused, key=lambda node: place[node])
        if are_mutated_between(match.relu, last, match.relu.args[:1]):
            return "its input is mutated before backward"
        return ""


def _match(relu: fx.Node) -> ReluConvMatch | None:
    """The relu with the depthwise convolution that reads it; None if there is none."""
    convs = [n for n in relu.users if _is_depthwise(n) and n.args[0] is relu]
    if not convs:
        return None
    conv = convs[0]
    backs = [n for n in relu.users if _is_backward_of(n, conv)]
    gradients = [getitems_of(back).get(0) for back in backs]
    derivatives = [
        n for n in relu.users if derivative_of(n) == "relu" and n.args[0] in gradients and n.args[1] is relu
    ]
    return ReluConvMatch(relu, conv, backs, derivatives)


def _is_depthwise(node: fx.Node) -> bool:
    if node.target is not aten.convolution.default:
        return False
    value, groups = cast("fx.Node", node.args[0]).meta["val"], node.args[8]
    return isinstance(groups, int) and groups > 1 and bool(value.shape[1] == groups)


def _is_backward_of(node: fx.Node, conv: fx.Node) -> bool:
    """True if the node computes the gradients of this convolution."""
    if node.target is not aten.convolution_backward.default:
        return False
    return node.args[1:3] == conv.args[:2] and node.args[4:10] == conv.args[3:9]


def _window_obstacle(match: ReluConvMatch) -> str:
    """Why the kernel does not support this convolution; "" if it does."""
    x, weight, bias, stride, padding, dilation, transposed, _, groups = cast("Any", match.conv.args)
    filters = weight.meta["val"].shape
    obstacles = {
        "it is not two-dimensional": len(filters) != 4,
        "it is transposed": transposed,
        "it has a bias": bias is not None,
        f"its dilation is {list(dilation)}": any(step != 1 for step in dilation),
        "it has several filters per channel": filters[0] != groups,
        "its window depends on the feeds": not all(isinstance(n, int) for n in (*stride, *padding)),
    }
    return next((reason for reason, holds in obstacles.items() if holds), "") or kernel_obstacle((x, weight))


def _fuse(graph: fx.Graph, match: ReluConvMatch) -> None:
    """Rewrite the nodes in place, so that variables stay bound; the relu's derivative becomes getitem 0."""
    x = match.relu.args[0]
    _, weight, _, stride, padding, *_ = match.conv.args
    for back in match.backs:
        items = getitems_of(back)
        back.target = relu_depthwise_backward
        back.args = (back.args[0], x, weight, stride, padding, [0 in items, 1 in items])
        back._rename("relu_depthwise_backward")
        back.meta["val"] = tuple(back.meta["val"][i] if i in items else None for i in (0, 1))
        for derivative in [n for n in match.derivatives if n.args[0] is items.get(0)]:
            back.meta["val"] = (derivative.meta["val"], back.meta["val"][1])
            derivative.target, derivative.args, derivative.kwargs = operator.getitem, (back, 0), {}
        if 0 in items:
            graph.erase_node(items[0])
    match.conv.target, match.conv.args = relu_depthwise, (x, weight, stride, padding)
    match.conv._rename("relu_depthwise")
    erase_stored(graph, match.relu, cast("fx.Node", x))

"""propagate: which values are inferred again, and that all values are those of their inputs."""

# SPDX-License-Identifier: Apache-2.0
import torch

import argosy as paddle
from argosy.engine.ir.check_values import check_values
from argosy.engine.ir.program import default_main_program
from argosy.engine.passes.base import rewrite
from argosy.engine.passes.channels_last import ChannelsLast

aten = torch.ops.aten


def test_only_values_that_depend_on_new_strides_are_replaced() -> None:
    x = paddle.static.data("x", [None, 3, 6, 6])
    hidden = paddle.nn.functional.relu(paddle.static.nn.conv2d(x, 4, 3, bias_attr=False))
    loss = paddle.mean(paddle.static.nn.fc(paddle.static.nn.fc(hidden, 5), 2))
    paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)
    graph = default_main_program().graph
    before = {node: node.meta["val"] for node in graph.nodes if "val" in node.meta}
    rewrite(default_main_program(), [ChannelsLast()])
    replaced = [node for node, value in before.items() if node.meta["val"] is not value]
    assert {aten.convolution.default, aten.relu.default, aten.convolution_backward.default} <= {
        node.target for node in replaced
    }
    unchanged = {node.target for node in before} - {node.target for node in replaced}
    assert aten.mm.default in unchanged, "the layers behind the copy for the view"
    check_values(graph.nodes)

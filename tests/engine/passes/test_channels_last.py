"""channels_last: what it converts, what it leaves alone, and that results are equal."""

# SPDX-License-Identifier: Apache-2.0
import logging

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import fx

import argosy as paddle
from argosy.engine.ir.backward import append_backward
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.ir.variable import Variable
from argosy.engine.passes.base import run_passes
from argosy.engine.passes.channels_last import ChannelsLast
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope

W = torch.randn(8, 3, 3, 3)


def net() -> tuple[Program, Variable]:
    """conv, relu, pool, a flattening view, and an update with state."""
    program, startup = default_main_program(), default_startup_program()
    x = program.data("x", [None, 3, 9, 9])
    w = program.state("w", W.shape, "float32", trainable=True)
    v = program.state("w_velocity_0", W.shape, "float32")
    startup.define("w", W.clone)
    startup.define("w_velocity_0", lambda: torch.zeros(W.shape))
    loss = (F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2).flatten(1) ** 2).sum()
    ((weight, grad),) = append_backward(loss)
    with program.recording("optimize"), torch.no_grad():
        v.value.mul_(0.9).add_(grad.value)
        weight.value.sub_(v.value, alpha=0.001)
    return program, loss


def copied(program: Program) -> fx.Graph:
    graph = fx.Graph()
    graph.graph_copy(program.graph, {})
    return graph


def count(graph: fx.Graph, name: str) -> int:
    return sum(str(n.target) == name for n in graph.nodes)


def test_converts_the_feed_once_and_copies_where_a_view_breaks() -> None:
    program, _ = net()
    graph = copied(program)
    (report,) = run_passes(graph, [ChannelsLast()])
    assert report.changed == 1
    assert count(graph, "aten.clone.default") == 2, "the feed, and what is flattened"
    assert "1 convolutions, 1 inputs converted" in report.text


def test_a_second_run_changes_nothing_more() -> None:
    program, _ = net()
    graph = copied(program)
    run_passes(graph, [ChannelsLast()])
    once = [n.format_node() for n in graph.nodes]
    run_passes(graph, [ChannelsLast()])
    assert [n.format_node() for n in graph.nodes] == once


def test_leaves_programs_without_convolution_alone() -> None:
    x = default_main_program().data("x", [None, 4])
    torch.relu(x)
    graph = copied(default_main_program())
    (report,) = run_passes(graph, [ChannelsLast()])
    assert (report.changed, report.text) == (0, "no 2-D convolution")


def test_leaves_alone_what_looks_at_strides() -> None:
    program, _ = net()
    program.call(lambda t: t.as_strided((2, 2), (1, 1)), (program.var("x"),), {})
    (report,) = run_passes(copied(program), [ChannelsLast()])
    assert report.changed == 0
    assert "reads memory by its strides" in report.text


def test_training_equals_eager_and_the_weight_is_channels_last() -> None:
    program, loss = net()
    exe = Executor()
    exe.run(default_startup_program())
    w = W.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], 0.001, 0.9)
    for batch in (4, 2, 5):
        x = torch.randn(batch, 3, 9, 9)
        (actual,) = exe.run(program, feed={"x": x}, fetch_list=[loss])
        optimizer.zero_grad()
        wanted = (F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2).flatten(1) ** 2).sum()
        wanted.backward()
        optimizer.step()
        assert actual == pytest.approx(wanted.item(), rel=1e-5)
        np.testing.assert_allclose(global_scope().get("w").numpy(), w.detach().numpy(), rtol=1e-4, atol=1e-6)
    assert global_scope().get("w").is_contiguous(memory_format=torch.channels_last)


def test_each_pass_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    program, _ = net()
    with caplog.at_level(logging.INFO, "argosy"):
        run_passes(copied(program), [ChannelsLast()])
    (line,) = [m for m in caplog.messages if m.startswith("pass ")]
    assert line.startswith("pass channels_last: 1 rewrites, ")


def test_an_image_of_one_row_can_be_flattened() -> None:
    x = paddle.static.data("x", [None, 8, 1, 4], "float32")
    y = paddle.flatten(paddle.static.nn.conv2d(x, 8, 3, padding=1), 1)
    exe = paddle.static.Executor()
    exe.run(paddle.static.default_startup_program())
    (actual,) = exe.run(feed={"x": np.ones((2, 8, 1, 4), "float32")}, fetch_list=[y])
    assert actual.shape == (2, 32)

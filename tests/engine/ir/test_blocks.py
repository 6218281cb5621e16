"""Nodes with blocks: printed, verified, cloned, and treated as one op by the passes."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import argosy as paddle
from argosy import static
from argosy.engine.errors import ProgramError
from argosy.engine.ir import names
from argosy.engine.ir.build import Build
from argosy.engine.ir.effects import is_random
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.ir.verify import verify
from argosy.engine.passes.autocast import Autocast
from argosy.engine.passes.recompute import Recompute
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard
from argosy.fluid import layers
from argosy.static.nn import cond, while_loop


def net() -> Any:
    """A convolution, then a branch with a loop in it, dropout in the other one."""
    image, n = static.data("x", [None, 3, 8, 8]), static.data("n", [1], "int64")
    maps = torch.relu(static.nn.conv2d(image, 4, 3, padding=1))
    hidden = static.nn.fc(maps, 6, activation="tanh")
    w = static.create_parameter([6, 6], "float32", name="w")

    def loop() -> Any:
        i = paddle.zeros([1], "int64")
        step: Any = lambda i, h: [i + 1, torch.tanh(h @ w)]  # noqa: E731
        return while_loop(lambda i, h: i < n, step, [i, hidden])[1]

    flat: Any = lambda: maps.view(maps.size(0), -1)[:, :6] + F.dropout(hidden, 0.5, training=False)  # noqa: E731
    return cond(n < 5, loop, flat)


def trained(build: Build, steps: int = 3) -> list[float]:
    """The losses of SGD on random images, with loops of 0, 1, … iterations, and the other branch at last."""
    out = net()
    loss = (out * out).mean()
    paddle.optimizer.SGD(0.1).minimize(loss)
    program = static.default_main_program()
    program.build = build
    exe = static.Executor()
    exe.run(static.default_startup_program())
    losses = []
    for step in range(steps):
        images = np.random.default_rng(step).standard_normal((4, 3, 8, 8)).astype("float32")
        feed = {"x": images, "n": np.array([9 if step == steps - 1 else step])}
        losses.append(float(exe.run(feed=feed, fetch_list=[loss])[0]))
    return losses


def fresh(function: Any, *args: Any) -> Any:
    """In programs and a scope of its own."""
    torch.manual_seed(0)
    with program_guard(Program(), Program()), names.guard(), scope_guard(Scope()):
        return function(*args)


def test_passes_leave_the_results_of_branches_and_loops_as_they_are() -> None:
    plain = Build(without_passes=frozenset({"in_place", "rematerialize", "channels_last", "fuse_optimizer"}))
    expected = fresh(trained, plain)
    np.testing.assert_allclose(fresh(trained, Build()), expected, rtol=1e-5)
    np.testing.assert_allclose(fresh(trained, Build(recompute=Recompute())), expected, rtol=1e-5)
    half = fresh(trained, Build(autocast=Autocast()))
    np.testing.assert_allclose(half, expected, rtol=0.05)
    assert half != expected, "the convolution and the product outside of the branch are 16-bit"


def test_a_program_shows_its_blocks_indented() -> None:
    net()
    text = str(static.default_main_program())
    assert "forward     cond = cond(" in text
    assert "\n              true:\n" in text
    assert "\n                    mm = mm(" in text, "the body of the loop in the branch"
    assert "\n              false:\n" in text


def test_a_program_for_testing_has_no_dropout_in_its_branches() -> None:
    x = static.data("x", [None, 4])
    out = cond(x.sum() > 0, lambda: layers.dropout(x, 0.5) * 2, lambda: layers.dropout(x, 0.5))
    training = static.default_main_program()
    test = training.clone(for_test=True)
    assert any(map(is_random, training.graph.nodes))
    assert not any(map(is_random, test.graph.nodes))
    exe = static.Executor()
    fed = np.ones((2, 4), "float32")
    np.testing.assert_allclose(exe.run(test, feed={"x": fed}, fetch_list=[out])[0], fed)
    np.testing.assert_allclose(exe.run(test, feed={"x": -fed}, fetch_list=[out])[0], -fed / 2)
    cond(x.sum() > 0, lambda: torch.nn.Dropout(0.5)(x), lambda: x)
    with pytest.raises(ProgramError, match="torch module in training mode inside a branch"):
        training.clone(for_test=True)


def test_a_block_that_writes_into_its_input_is_reported_after_a_pass() -> None:
    x = static.data("x", [None, 4])
    cond(x.sum() > 0, lambda: torch.relu(x), lambda: x * 2)
    graph = static.default_main_program().graph
    (node,) = [n for n in graph.nodes if getattr(n.target, "blocks", ())]
    verify(graph)
    node.target.blocks[0].nodes[0].target = torch.ops.aten.relu_.default
    with pytest.raises(ProgramError, match="writes into an input of its block"):
        verify(graph)


def test_a_torch_module_in_a_branch_is_trained() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    x = static.data("x", [None, 4])
    out = cond(x.sum() > 0, lambda: module(x), lambda: x)
    pairs = static.append_backward((out * out).mean())
    exe = static.Executor()
    exe.run(static.default_startup_program())
    for sign in (1, -1):
        fed = torch.full((2, 4), float(sign))
        gradients = exe.run(feed={"x": fed.numpy()}, fetch_list=[g for _, g in pairs])
        parameters = list(module.parameters())
        loss = (module(fed) ** 2).mean()
        expected = (
            torch.autograd.grad(loss, parameters) if sign > 0 else list(map(torch.zeros_like, parameters))
        )
        for ours, theirs in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-5, atol=1e-7)
    assert set(global_scope().values_of()) >= {p.name for p, _ in pairs}

"""Feeding variables that the program computes: what runs, which sizes and gradients there are, what is rejected."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch

from argosy import fluid
from argosy.engine.errors import FeedError
from argosy.engine.ir.fed_variables import with_fed_variables
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope

HIDDEN = np.random.default_rng(0).random((5, 3), "float32")
TARGET = np.random.default_rng(1).random((5, 1), "float32")


def net() -> tuple[Variable, Variable]:
    """(hidden, loss) with hidden = relu(x w0), loss = mean((hidden w1 - y)²)."""
    x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
    hidden = fluid.layers.fc(x, 3, act="relu", bias_attr=False)
    out = fluid.layers.fc(hidden, 1, bias_attr=False)
    return hidden, fluid.layers.mean(fluid.layers.square_error_cost(out, y))


def expected(weight: torch.Tensor) -> torch.Tensor:
    return (torch.from_numpy(HIDDEN) @ weight - torch.from_numpy(TARGET)).square().mean()


def test_nodes_that_only_compute_a_fed_variable_do_not_run() -> None:
    hidden, loss = net()
    exe = Executor()
    exe.run(default_startup_program())
    feed = {hidden.name: HIDDEN, "y": TARGET}
    for _ in range(2):
        (value,) = exe.run(feed=feed, fetch_list=[loss])
    weight = global_scope().get("fc_1.w_0")
    assert value == pytest.approx(expected(weight).item(), rel=1e-5)
    global_scope().get("fc_0.w_0").fill_(float("nan"))  # never read
    assert exe.run(feed=feed, fetch_list=[loss])[0] == value
    with pytest.raises(FeedError, match=r"must have \[any, 3\]"):
        exe.run(feed={**feed, hidden.name: HIDDEN[:, :2]}, fetch_list=[loss])
    with pytest.raises(FeedError, match="'fc_1.w_0' is a variable of the scope"):
        exe.run(feed={**feed, "fc_1.w_0": np.ones((3, 1), "float32")}, fetch_list=[loss])


def test_gradients_use_the_fed_value_and_stay_recorded_for_the_rest() -> None:
    hidden, loss = net()
    fluid.optimizer.SGD(0.0).minimize(loss)
    exe = Executor()
    exe.run(default_startup_program())
    weight = global_scope().get("fc_1.w_0").clone().requires_grad_()
    (wanted,) = torch.autograd.grad(expected(weight), weight)
    feed = {hidden.name: HIDDEN, "y": TARGET}
    with pytest.raises(FeedError, match="feed 'x' .* is missing"):  # the gradient of fc_0.w_0 depends on it
        exe.run(feed=feed)
    (gradient,) = exe.run(feed={**feed, "x": np.ones((5, 4), "float32")}, fetch_list=["fc_1.w_0@GRAD"])
    np.testing.assert_allclose(gradient, wanted.numpy(), rtol=1e-5)


def test_the_program_itself_does_not_change() -> None:
    hidden, _ = net()
    program = default_main_program()
    before, version = str(program), program.version
    copied = with_fed_variables(program, [hidden.name])
    assert (str(program), program.version) == (before, version)
    assert set(copied.feeds()) == {"x", "y", hidden.name}
    assert not program.vars[hidden.name].is_data

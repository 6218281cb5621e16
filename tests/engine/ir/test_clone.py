"""clone: copies are independent; for_test turns training into inference."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy.engine.ir.backward import append_backward
from argosy.engine.ir.lowering import batch_norm
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.ir.variable import Variable
from argosy.engine.ir.verify import verify
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope


def net() -> tuple[Program, Variable]:
    """conv, batch norm, relu, dropout, sum, and an update of the weight."""
    program, startup = default_main_program(), default_startup_program()
    x = program.data("x", [None, 2, 5, 5])
    w = program.state("w", [3, 2, 3, 3], "float32", trainable=True)
    mean, var = program.state("mean", [3], "float32"), program.state("var", [3], "float32")
    startup.define("w", lambda: torch.randn(3, 2, 3, 3))
    startup.define("mean", lambda: torch.zeros(3))
    startup.define("var", lambda: torch.ones(3))
    h = F.conv2d(x, w)
    h = program.call(batch_norm, (h, mean, var, None, None, True, 0.1, 1e-5), {"unbiased": False})
    loss = F.dropout(torch.relu(h), 0.5).sum()
    ((weight, grad),) = append_backward(loss)
    with program.recording("optimize"), torch.no_grad():
        weight.value.sub_(grad.value, alpha=0.01)
    return program, loss


def feed(batch: int = 4) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(batch, 2, 5, 5)}


def test_a_clone_runs_like_the_program_and_shares_only_the_scope() -> None:
    program, loss = net()
    copy = program.clone()
    verify(copy.graph)
    assert str(copy).splitlines()[1:] == str(program).splitlines()[1:]
    assert copy.var("w") is not program.var("w")
    nodes = len(program.graph.nodes)
    torch.relu(copy.var(loss.name))
    assert len(program.graph.nodes) == nodes
    assert len(copy.graph.nodes) == nodes + 1


def test_a_clone_can_be_differentiated_on_its_own() -> None:
    program = default_main_program()
    x = program.data("x", [None, 4])
    w = program.state("w", [4, 2], "float32", trainable=True)
    loss = (x @ w).sum()
    copy = program.clone()
    append_backward(copy.var(loss.name))
    assert "w@GRAD" in copy.vars
    assert "w@GRAD" not in program.vars


def test_for_test_has_only_forward_nodes() -> None:
    program, _ = net()
    test = program.clone(for_test=True)
    verify(test.graph)
    assert {n.meta["role"] for n in test.graph.nodes} == {"forward"}
    targets = {str(n.target) for n in test.graph.nodes}
    assert not targets & {
        "aten.native_dropout.default",
        "argosy.update_running_stats.default",
        "aten.sub_.Tensor",
    }


def test_for_test_normalises_with_the_running_statistics_and_drops_nothing() -> None:
    program, loss = net()
    test = program.clone(for_test=True)
    exe = Executor()
    exe.run(default_startup_program())
    for _ in range(3):
        exe.run(program, feed=feed(), fetch_list=[])
    given = feed(7)
    before = {n: global_scope().get(n).clone() for n in ("w", "mean", "var")}
    (actual,) = exe.run(test, feed=given, fetch_list=[loss])
    w, mean, var = before["w"], before["mean"], before["var"]
    wanted = F.relu(F.batch_norm(F.conv2d(given["x"], w), mean, var)).sum()
    np.testing.assert_allclose(actual, wanted.numpy(), rtol=1e-5)
    for name, value in before.items():
        assert torch.equal(global_scope().get(name), value), f"{name} changed in a test run"


def test_for_test_before_minimize_gives_the_same_program_as_after() -> None:
    program = default_main_program()
    x = program.data("x", [None, 4])
    w = program.state("w", [4, 2], "float32", trainable=True)
    loss = torch.tanh(x @ w).sum()
    early = program.clone(for_test=True)
    append_backward(loss)
    assert str(early).splitlines()[1:] == str(program.clone(for_test=True)).splitlines()[1:]


def test_randomness_that_stays_is_said(caplog: pytest.LogCaptureFixture) -> None:
    x = default_main_program().data("x", [None, 4])
    x + torch.rand_like(x)
    default_main_program().clone(for_test=True)
    assert "is still random" in caplog.text

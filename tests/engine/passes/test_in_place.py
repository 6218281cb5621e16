"""in_place: what is written over, what must not be, and that results are equal."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from torch import Tensor, fx

from argosy.engine.ir.backward import append_backward
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.ir.variable import Variable
from argosy.engine.passes.base import run_passes
from argosy.engine.passes.in_place import InPlace
from argosy.engine.runtime.executor import Executor


def rewritten(program: Program, *fetches: Variable) -> list[str]:
    """The ops after the pass."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.graph_copy(program.graph, copies)
    run_passes(graph, [InPlace(frozenset(copies[f.node] for f in fetches))])
    return [str(n.target).removeprefix("aten.") for n in graph.nodes if n.op == "call_function"]


def feed() -> Variable:
    return default_main_program().data("x", [None, 4])


def test_a_dead_input_is_written_over() -> None:
    x = feed()
    y = torch.relu(torch.sin(x)).sum()
    assert rewritten(default_main_program(), y) == ["sin.default", "relu_.default", "sum.default"]


def test_a_sum_takes_whichever_input_is_dead() -> None:
    x = feed()
    y = (x + torch.sin(x)).sum()
    assert rewritten(default_main_program(), y) == ["sin.default", "add_.Tensor", "sum.default"]


def test_what_is_read_again_stays() -> None:
    s = torch.sin(feed())
    y = (torch.relu(s) * s).sum()
    assert rewritten(default_main_program(), y)[:2] == ["sin.default", "relu.default"]


def test_a_feed_a_fetch_and_the_scope_stay() -> None:
    x = feed()
    w = default_main_program().state("w", [4], "float32", trainable=True)
    a = torch.relu(x)
    b = torch.relu(w)
    s = torch.sin(x)
    c = torch.relu(s)
    assert rewritten(default_main_program(), a, b, c, s) == ["relu.default"] * 2 + [
        "sin.default",
        "relu.default",
    ]


def test_a_view_that_is_read_later_keeps_the_memory() -> None:
    s = torch.sin(feed())
    v = s.view(-1)
    y = torch.relu(s).sum() + v.sum()
    assert "relu.default" in rewritten(default_main_program(), y)


def test_a_part_or_an_expanded_value_is_not_written_over() -> None:
    x = feed()
    part = torch.relu(torch.sin(x)[:, :2])
    wide = torch.relu(torch.sin(x).sum(1, keepdim=True).expand(-1, 4))
    y = part.sum() + wide.sum()
    assert rewritten(default_main_program(), y).count("relu.default") == 2


def test_another_shape_or_dtype_is_not_written_over() -> None:
    x = feed()
    y = (torch.sin(x).sum(1, keepdim=True) + x).sum()
    assert "add.Tensor" in rewritten(default_main_program(), y)


def test_a_weighted_sum_is_not_turned_round() -> None:
    x = feed()
    y = torch.add(x, torch.sin(x), alpha=2).sum()
    assert "add.Tensor" in rewritten(default_main_program(), y)


def test_a_value_added_to_itself_is_left_alone() -> None:
    s = torch.sin(feed())
    y = torch.add(s, s).sum()
    assert "add.Tensor" in rewritten(default_main_program(), y)


def test_a_second_run_changes_nothing() -> None:
    y = torch.relu(torch.sin(feed())).sum()
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.graph_copy(default_main_program().graph, copies)
    fetched = frozenset([copies[y.node]])
    run_passes(graph, [InPlace(fetched)])
    (report,) = run_passes(graph, [InPlace(fetched)])
    assert report.changed == 0


def residual(x: Tensor, w: Tensor) -> Tensor:
    """Forks and joins, so that gradients are added."""
    for _ in range(3):
        x = torch.relu(torch.relu(x @ w) @ w + x)
    return x


@pytest.mark.parametrize("batch", [2, 5])
def test_results_and_gradients_equal_eager(batch: int) -> None:
    start = torch.randn(4, 4)
    x = feed()
    program = default_main_program()
    w = program.state("w", [4, 4], "float32", trainable=True)
    default_startup_program().define("w", start.clone)
    out = program.call(residual, (x, w), {})
    ((_, grad),) = append_backward(out.sum())
    exe = Executor()
    exe.run(default_startup_program())
    given = torch.randn(batch, 4)
    actual = exe.run(feed={"x": given}, fetch_list=[out, grad])
    leaf = start.clone().requires_grad_()
    wanted = residual(given, leaf)
    wanted.sum().backward()
    assert leaf.grad is not None
    np.testing.assert_array_equal(actual[0], wanted.detach().numpy())
    np.testing.assert_array_equal(actual[1], leaf.grad.numpy())

"""narrow_copies: which casts of weights the updates replace, and which stay."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

import argosy as paddle
from argosy.engine.ir import names
from argosy.engine.ir.build import Build
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.passes.autocast import Autocast
from argosy.engine.passes.base import run_passes

BF16 = torch.bfloat16


def program(optimizer: Any, after: Callable[[Any, Any], None] = lambda x, w: None) -> Program:
    """x @ w, minimized; `after` adds to it."""
    main = Program("main")
    with program_guard(main, Program("startup")), names.guard():
        x = paddle.static.data("x", [None, 4])
        w = paddle.static.create_parameter([4, 3], "float32", name="w")
        optimizer.minimize(paddle.mean(paddle.matmul(x, w)))
        after(x, w)
    return main


def rewritten(main: Program) -> fx.Graph:
    graph = fx.Graph()
    graph.graph_copy(main.graph, {})
    run_passes(graph, [Autocast()])
    return graph


def casts(graph: fx.Graph) -> list[str]:
    """The weights that are cast to bfloat16."""
    nodes = [n for n in graph.nodes if "_to_copy" in str(n.target) and n.kwargs == {"dtype": BF16}]
    return [n.args[0].name for n in nodes if n.args[0].name == "w"]


def test_the_update_writes_the_copy_that_the_product_reads() -> None:
    graph = rewritten(program(paddle.optimizer.Momentum(0.1, 0.9)))
    (copy,) = [n for n in graph.nodes if "copy_of" in n.meta]
    (update,) = [n for n in graph.nodes if "momentum" in str(n.target)]
    weight = copy.meta["copy_of"]
    assert (weight.name, copy.meta["val"].dtype, copy.meta["val"].shape) == ("w", BF16, (4, 3))
    assert update.args[0] is copy
    assert update.args[-1] is weight, "the master"
    assert not casts(graph)


def test_the_printed_program_shows_the_copy() -> None:
    main = program(paddle.optimizer.SGD(0.1))
    main.build = Build(autocast=Autocast())
    text = str(main)
    assert "copy        w@bfloat16 " in text
    assert "matmul_0.tmp_0 = mm(to_bfloat16, w@bfloat16)" in text
    assert "sgd(w@bfloat16, w@GRAD, learning_rate_0, 1.0, 0.0, w)" in text


def test_a_second_run_changes_nothing() -> None:
    graph = rewritten(program(paddle.optimizer.Momentum(0.1, 0.9)))
    before = str(graph)
    run_passes(graph, [Autocast()])
    assert str(graph) == before


def writes_again(x: Any, w: Any) -> None:
    with w.program.recording("optimize"), torch.no_grad():
        w.value.mul_(0.5)


def reads_after_the_update(x: Any, w: Any) -> None:
    paddle.matmul(x, w)


@pytest.mark.parametrize(("after", "count"), [(writes_again, 1), (reads_after_the_update, 2)])
def test_the_cast_stays_where_the_update_is_not_the_only_writer(after: Any, count: int) -> None:
    graph = rewritten(program(paddle.optimizer.SGD(0.1), after))
    assert len(casts(graph)) == count
    assert not [n for n in graph.nodes if "copy_of" in n.meta]


def test_a_weight_that_is_not_trained_is_cast() -> None:
    main = program(paddle.optimizer.SGD(0.1)).clone(for_test=True)
    assert casts(rewritten(main)) == ["w"]


def test_a_parameter_with_a_master_of_its_own_is_left_alone() -> None:
    main = Program("main")
    with program_guard(main, Program("startup")), names.guard():
        x = paddle.static.data("x", [None, 4], "bfloat16")
        w = paddle.static.create_parameter([4, 3], "bfloat16", name="w")
        optimizer = paddle.optimizer.Momentum(0.1, 0.9, multi_precision=True)
        optimizer.minimize(paddle.mean(paddle.matmul(x, w)))
    graph = rewritten(main)
    assert not [n for n in graph.nodes if "copy_of" in n.meta]
    (update,) = [n for n in graph.nodes if "momentum" in str(n.target)]
    assert update.args[0].name == "w"

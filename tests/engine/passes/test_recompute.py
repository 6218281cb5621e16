"""recompute: what is recomputed, where, from what; what never runs twice; plans within a budget."""

# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import fx

import argosy as paddle
from argosy.engine.ir.build import Build
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.ir.show import op_name
from argosy.engine.ir.variable import Variable
from argosy.engine.passes.base import Pass, Report, run_passes
from argosy.engine.passes.fuse_bn_act import FuseBnAct
from argosy.engine.passes.fuse_bn_add_act import FuseBnAddAct
from argosy.engine.passes.fuse_elewise_add_act import FuseElewiseAddAct
from argosy.engine.passes.recompute import CHECKPOINT, Recompute

aten = torch.ops.aten


def parameter(name: str, *shape: int) -> Variable:
    variable = default_main_program().state(name, list(shape), "float32", trainable=True)
    default_startup_program().define(name, lambda: torch.randn(*shape) * 0.3)
    return variable


def feed(*shape: int) -> Variable:
    return default_main_program().data("x", [None, *shape])


def chain(x: Variable, length: int = 6, act: Callable[[Any], Any] = torch.tanh) -> list[Variable]:
    """x, act(x @ w0), act(act(x @ w0) @ w1), …"""
    values = [x]
    for i in range(length):
        values.append(act(values[-1] @ parameter(f"w{i}", 32, 32)))
    return values


def rewritten(
    loss: Variable, *checkpoints: Variable, passes: tuple[Pass, ...] = (), options: Any = None
) -> tuple[fx.Graph, Report]:
    """The graph after SGD's updates and the passes, with these checkpoints."""
    paddle.optimizer.SGD(0.1).minimize(loss)
    for checkpoint in checkpoints:
        checkpoint.node.meta[CHECKPOINT] = True
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.graph_copy(default_main_program().graph, copies)
    live_out = frozenset({copies[loss.node]})
    recompute = Recompute(**(options or {})).with_live_out(live_out)
    return graph, run_passes(graph, [*passes, recompute])[-1]


def recomputed(graph: fx.Graph) -> list[str]:
    return [op_name(n) for n in graph.nodes if "_recompute" in n.name]


def place(graph: fx.Graph, name: str) -> int:
    return [n.name for n in graph.nodes].index(name)


def test_a_segment_is_recomputed_from_its_checkpoint_before_its_first_reader() -> None:
    values = chain(feed(32))
    graph, report = rewritten(torch.sin(values[-1]).sum(), values[2], values[4])
    names = [n.name for n in graph.nodes if n.name.endswith("_recompute")]
    # Without the checkpoints, and without what comes after the last one: tanh_4 and tanh_5.
    assert names == ["mm_2_recompute", "tanh_2_recompute", "mm_recompute", "tanh_recompute"]
    backward = [n.name for n in graph.nodes if n.target is aten.tanh_backward.default]
    assert place(graph, "tanh_2_recompute") > place(graph, backward[2]) > place(graph, backward[1])
    assert place(graph, "mm_recompute") > place(graph, backward[3])
    (node,) = [n for n in graph.nodes if n.name == "mm_2_recompute"]
    assert node.args[0].name == "tanh_1"
    assert node.meta["role"] == "backward"
    assert report.changed == 4
    assert "nodes are recomputed in backward, the peak" in report.text


def test_what_is_fetched_is_stored() -> None:
    values = chain(feed(32))
    loss = torch.sin(values[-1]).sum()
    paddle.optimizer.SGD(0.1).minimize(loss)
    values[4].node.meta[CHECKPOINT] = True
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.graph_copy(default_main_program().graph, copies)
    run_passes(graph, [Recompute(live_out=frozenset({copies[loss.node], copies[values[1].node]}))])
    assert "tanh_recompute" not in [n.name for n in graph.nodes]


def test_random_ops_and_updates_of_statistics_run_once() -> None:
    x = feed(8, 6, 6)
    y = F.conv2d(x, parameter("c", 8, 8, 3, 3), padding=1)  # type: ignore[arg-type]
    y = torch.relu(paddle.static.nn.batch_norm(y))
    y = F.dropout(y, 0.5) * torch.rand_like(y)
    y = F.conv2d(torch.sin(y), parameter("d", 8, 8, 3, 3), padding=1)  # type: ignore[arg-type]
    graph, _ = rewritten(torch.sin(torch.cos(y)).sum(), y)
    ops = Counter(op_name(n) for n in graph.nodes)
    assert (
        ops["native_dropout"]
        == ops["rand_like"]
        == ops["update_running_stats"]
        == ops["native_batch_norm"]
        == 1
    )
    again = Counter(recomputed(graph))
    assert again["convolution"] == again["batch_norm_recompute"] == again["native_dropout_backward"] == 1


def test_a_value_whose_source_is_mutated_in_forward_is_stored() -> None:
    x, state = feed(32), parameter("s", 32, 32)
    y = torch.tanh(x @ torch.relu(state.detach()))
    default_main_program().call(lambda s: s.detach().add_(1.0), (state,), {})
    z = torch.sin(y @ parameter("w", 32, 32))
    graph, _ = rewritten(torch.cos(z @ parameter("v", 32, 32)).sum(), z)
    assert "relu" not in recomputed(graph)
    assert "tanh" in recomputed(graph)


def test_it_is_recomputed_before_an_early_update_of_its_parameter() -> None:
    """Backward reads x @ w for the gradient of p; with overlap that may come after the update of w."""
    x, w, p = feed(32), parameter("w", 32, 32), parameter("p", 32)
    end = torch.sin(((x @ w) * p) @ parameter("v", 32, 32))
    loss = torch.cos(end).sum()
    paddle.optimizer.SGD(0.1).minimize(loss)
    end.node.meta[CHECKPOINT] = True
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.graph_copy(default_main_program().graph, copies)
    (reader,) = [n for n in graph.nodes if n.name == "mm" for n in n.users if n.meta["role"] == "backward"]
    (update,) = [n for n in graph.nodes if op_name(n) == "sgd" and n.args[0].name == "w"]
    moved = [reader]
    for node in moved:
        moved += [user for user in node.users if user not in moved]
    for node in reversed(moved):
        update.append(node)
    run_passes(graph, [Recompute(live_out=frozenset({copies[loss.node]}))])
    assert place(graph, "mm_recompute") < place(graph, update.name) < place(graph, reader.name)


@pytest.mark.parametrize("fusion", [FuseBnAct, FuseBnAddAct, FuseElewiseAddAct])
def test_a_checkpoint_that_a_fusion_removes_is_stored_as_its_result(fusion: type[Any], kernels: bool) -> None:
    x = feed(8, 6, 6)
    stored = []
    for i in range(4):
        y = F.conv2d(x, parameter(f"c{i}", 8, 8, 3, 3), padding=1)  # type: ignore[arg-type]
        y = paddle.static.nn.batch_norm(y)
        stored.append(y if fusion is FuseBnAct else y + x)
        x = torch.relu(stored[-1])
    graph, report = rewritten(torch.sin(x).sum(), *stored[:3], passes=(fusion(),))
    assert recomputed(graph).count("convolution") == 3
    results = [n for n in graph.nodes if n.meta.get(CHECKPOINT)]
    assert len(results) == 3
    assert report.changed


def test_a_value_in_place_is_recomputed_in_new_memory() -> None:
    x = feed(32)
    h = torch.relu_(x @ parameter("a", 32, 32))
    y = torch.tanh(h @ parameter("b", 32, 32))
    graph, _ = rewritten(torch.sin(y @ parameter("c", 32, 32)).sum(), y)
    assert recomputed(graph) == ["mm", "relu_"]


# --- plans --------------------------------------------------------------------------------------------


def peaks(report: Report) -> tuple[float, float]:
    words = report.text.replace(",", "").split()
    return float(words[words.index("from") + 1]), float(words[words.index("to") + 1])


def test_a_plan_of_a_long_chain_needs_far_less_than_all_of_it() -> None:
    values = chain(feed(4096, 32), length=36)
    _, report = rewritten(torch.sin(values[-1]).sum(), options={"is_auto": True})
    before, after = peaks(report)
    assert after < 0.4 * before


def test_a_plan_recomputes_cheap_ops_rather_than_products() -> None:
    x = feed(64, 512)
    for i in range(8):
        x = F.gelu(x @ parameter(f"w{i}", 512, 512)) + x
    graph, report = rewritten(torch.sin(x).sum(), options={"is_auto": True, "budget_bytes": 32 * 2**20})
    before, after = peaks(report)
    assert after < before
    assert "gelu" in recomputed(graph)
    assert recomputed(graph).count("mm") <= 1


def test_a_budget_that_is_met_without_recomputation_costs_nothing() -> None:
    values = chain(feed(32))
    graph, report = rewritten(torch.sin(values[-1]).sum(), options={"is_auto": True, "budget_bytes": 2**30})
    assert recomputed(graph) == []
    assert not report.warnings


def test_a_budget_that_cannot_be_met_warns_with_the_peak() -> None:
    values = chain(feed(4096, 32))
    _, report = rewritten(torch.sin(values[-1]).sum(), options={"is_auto": True, "budget_bytes": 2**20})
    (warning,) = report.warnings
    assert "memory_budget_MB=1 cannot be met; the computed peak is" in warning


def test_a_program_without_backward_is_left_alone() -> None:
    chain(feed(32))
    report = run_passes(default_main_program().graph, [Recompute(is_auto=True)])[0]
    assert report == Report(0, "there is no backward")


def test_plans_are_made_for_the_sizes_that_are_fed() -> None:
    """The budget is for the batch that runs, and not for the size hint of the program."""
    values = chain(feed(256, 32), length=12)
    loss = torch.sin(values[-1]).sum()
    paddle.optimizer.SGD(0.1).minimize(loss)
    main = default_main_program()
    main.build = Build(recompute=Recompute(is_auto=True, budget_bytes=16 * 2**20), memory_optimize=False)
    exe = paddle.static.Executor()
    exe.run(default_startup_program())
    exe.run(main, feed={"x": np.ones((64, 256, 32), "float32")}, fetch_list=[loss])
    assert exe.memory_report(main).peak_bytes <= 16 * 2**20
    assert "_recompute = " in str(main)

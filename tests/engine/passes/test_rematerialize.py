"""rematerialize: what is recomputed, what is kept, and that results are equal bit for bit."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import fx

from argosy.engine.errors import ConfigError
from argosy.engine.ir.backward import append_backward
from argosy.engine.ir.build import Build
from argosy.engine.ir.program import Program, default_main_program, default_startup_program
from argosy.engine.ir.variable import Variable
from argosy.engine.kernels import unavailable
from argosy.engine.ops.batch_norm import batch_norm_recompute
from argosy.engine.passes import FUSION_NAMES
from argosy.engine.passes.base import Pass, Report, rewrite, run_passes
from argosy.engine.passes.channels_last import ChannelsLast
from argosy.engine.passes.fuse_bn_act import FuseBnAct
from argosy.engine.passes.in_place import InPlace
from argosy.engine.passes.rematerialize import SHAPE_ONLY, Rematerialize
from argosy.engine.runtime.executor import Executor

aten = torch.ops.aten
Net = Callable[[Variable], Variable]


def image() -> Variable:
    return default_main_program().data("x", [None, 8, 16, 16])


def parameter(name: str, *shape: int) -> Variable:
    variable = default_main_program().state(name, list(shape), "float32", trainable=True)
    default_startup_program().define(name, lambda: torch.randn(*shape) * 0.3)
    return variable


def conv(x: Variable, name: str, act: Callable[[Any], Any] = torch.relu) -> Variable:
    """convolution, batch norm, activation"""
    y = F.conv2d(x, parameter(name, 8, 8, 3, 3), padding=1)  # type: ignore[arg-type]  # a Variable
    y = F.batch_norm(y, None, None, parameter(f"{name}.g", 8), parameter(f"{name}.b", 8), training=True)  # type: ignore[arg-type]
    activation: Variable = act(y)
    return activation


def copied(program: Program, kept: tuple[Variable, ...]) -> tuple[fx.Graph, frozenset[fx.Node]]:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.graph_copy(program.graph, copies)
    return graph, frozenset(copies[v.node] for v in kept)


def rematerialized(*fetches: Variable, share: float = 1.0, **options: Any) -> tuple[fx.Graph, Report]:
    graph, fetched = copied(default_main_program(), fetches)
    (report,) = run_passes(graph, [Rematerialize(fetched, share, min_bytes=0, **options)])
    return graph, report


def recomputed(graph: fx.Graph) -> list[str]:
    """The ops of the nodes that the pass inserted."""
    return [str(n.target).rsplit(".", 1)[0] for n in graph.nodes if "_recompute" in n.name]


def test_what_follows_a_batch_norm_is_computed_from_the_norms_input() -> None:
    y = conv(conv(conv(image(), "a"), "b"), "c")
    loss = y.sum()
    append_backward(loss)
    graph, report = rematerialized(loss)
    assert (
        recomputed(graph) == ["argosy.batch_norm_recompute", "aten.relu"] * 2
    )  # c's is read at once: nothing is gained
    assert report.changed == 2
    assert "recomputed for backward" in report.text
    read = {n.args[1].name for n in graph.nodes if n.target is aten.convolution_backward.default}
    assert read == {"x", "relu_recompute_1", "relu_1_recompute_1"}


def test_a_value_with_several_readers_is_recomputed_once() -> None:
    y = conv(image(), "a")
    z = conv(y, "b") + conv(y, "c")
    loss = conv(z, "d").sum()
    append_backward(loss)
    graph, _ = rematerialized(loss)
    (made,) = [n for n in graph.nodes if n.name == "relu_recompute_1"]
    assert len(made.users) == 3  # the backwards of b's and c's convolutions, and a's own mask


def test_the_peak_falls_and_in_place_writes_over_what_was_recomputed() -> None:
    loss = conv(conv(conv(image(), "a"), "b"), "c").sum()
    append_backward(loss)
    graph, fetched = copied(default_main_program(), (loss,))
    run_passes(graph, [ChannelsLast(), Rematerialize(fetched, 1.0, min_bytes=0), InPlace(fetched)])
    (recomputed_relu,) = [n for n in graph.nodes if n.name == "relu_recompute_1"]
    assert recomputed_relu.target is aten.relu_.default


def test_a_cast_of_a_kept_value_is_recomputed() -> None:
    x, w = image(), parameter("w", 8, 16, 16)
    loss = torch.sin(torch.cos(x.double() * w)).sum()
    append_backward(loss)
    graph, _ = rematerialized(loss)
    assert recomputed(graph)[-1] == "aten._to_copy"


def test_activations_and_dropouts_of_kept_values_are_recomputed() -> None:
    x = image().flatten(1)
    w = [parameter(f"w{i}", 2048, 2048) for i in range(4)]
    h = F.gelu(x @ w[0])  # gelu's backward reads what went in
    h = F.dropout(torch.relu(h @ w[1]), 0.5)  # relu's reads what came out, which dropout's output comes from
    loss = torch.sin((h @ w[2]) @ w[3]).sum()
    append_backward(loss)
    graph, _ = rematerialized(loss)
    assert {"aten.gelu", "aten.native_dropout_backward"} <= set(recomputed(graph))


def test_a_view_of_what_is_given_up_is_made_again_too() -> None:
    x = default_main_program().data("x", [None, 6, 32])
    w, v = parameter("w", 32, 32), parameter("v", 32, 32)
    y = F.linear(F.gelu(F.linear(x, w)), v)  # type: ignore[arg-type]  # over three dimensions: views in between
    loss = torch.sin(torch.cos(y)).sum()
    append_backward(loss)
    graph, _ = rematerialized(loss)
    assert "aten.gelu" in recomputed(graph)
    assert_equal_results(loss, {"x": torch.randn(5, 6, 32)})


def test_what_is_fetched_is_kept() -> None:
    y = conv(image(), "a")
    loss = conv(conv(y, "b"), "c").sum()
    append_backward(loss)
    graph, _ = rematerialized(loss, y)
    assert not [n for n in graph.nodes if n.name.startswith("relu_recompute")]


def test_products_sums_and_random_numbers_are_not_recomputed() -> None:
    x = image().flatten(1)
    w = parameter("w", 2048, 2048)
    h = torch.rand_like(x @ w) * (x @ w)
    s = torch.softmax(h, 1)
    loss = (torch.cumsum(s, 1) @ w).square().sum()
    append_backward(loss)
    graph, _ = rematerialized(loss)
    assert not {"aten.rand_like", "aten._softmax", "aten.mm", "aten.cumsum"} & set(recomputed(graph))


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_source_that_is_changed_meanwhile_is_not_trusted(is_changed: bool) -> None:
    x, state, w = image(), parameter("s", 8, 16, 16), parameter("w", 8, 16, 16)
    y = torch.relu(state.detach())
    loss = torch.sin(torch.cos((x * w) * y)).sum()
    if is_changed:
        default_main_program().call(lambda s: s.detach().add_(1.0), (state,), {})
    append_backward(loss)
    graph, _ = rematerialized(loss)
    assert ("aten.relu" in recomputed(graph)) is not is_changed


def test_what_comes_from_a_value_that_dies_is_kept() -> None:
    w = parameter("w", 2048, 2048)
    h = torch.tanh(image().flatten(1) @ w)  # tanh's backward reads what came out; the product is not kept
    loss = (h @ w).sum()
    append_backward(loss)
    graph, _ = rematerialized(loss)
    assert "aten.tanh" not in recomputed(graph)


def test_small_values_and_programs_without_backward_are_left_alone() -> None:
    y = conv(conv(image(), "a"), "b")
    graph, fetched = copied(default_main_program(), (y,))
    (report,) = run_passes(graph, [Rematerialize(fetched)])
    assert (report.changed, report.text) == (0, "there is no backward")
    loss = y.sum()
    append_backward(loss)
    graph, fetched = copied(default_main_program(), (loss,))
    (report,) = run_passes(graph, [Rematerialize(fetched)])
    assert report.changed == 0


def test_a_share_limits_what_is_given_up() -> None:
    y = image()
    for name in "abcdefgh":
        y = conv(y, name)
    loss = y.sum()
    append_backward(loss)
    counts = [rematerialized(loss, share=share)[1].changed for share in (0.0, 0.1, 0.25, 1.0)]
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert counts[1] < counts[3]


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_is_a_part(share: float) -> None:
    with pytest.raises(ConfigError, match="from 0"):
        Rematerialize(share=share)


def test_a_second_run_changes_nothing() -> None:
    y = conv(F.max_pool2d(conv(conv(image(), "a"), "b"), 2), "c")  # type: ignore[arg-type]
    loss = y.sum()
    append_backward(loss)
    graph, fetched = copied(default_main_program(), (loss,))
    rematerialize = Rematerialize(fetched, 1.0, min_bytes=0)
    assert run_passes(graph, [rematerialize])[0].changed > 0
    assert run_passes(graph, [rematerialize])[0].changed == 0


# --- pools --------------------------------------------------------------------------------------------


def test_a_pool_looks_at_the_shape_of_another_value() -> None:
    loss = F.max_pool2d(conv(image(), "a"), 2).sum()  # type: ignore[arg-type]
    append_backward(loss)
    graph, _ = rematerialized(loss)
    (pool,) = [n for n in graph.nodes if n.target is aten.max_pool2d_with_indices_backward.default]
    assert pool.args[1].name == "convolution"


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_pools_read_no_number_of_what_they_look_at(order: torch.memory_format) -> None:
    x = torch.randn(2, 8, 9, 9).to(memory_format=order)
    y, indices = aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])
    dy, pooled_grad = torch.randn_like(y), torch.randn_like(aten._adaptive_avg_pool2d(x, [2, 2]))
    calls: dict[Any, Callable[[torch.Tensor], torch.Tensor]] = {
        aten.max_pool2d_with_indices_backward.default: lambda t: aten.max_pool2d_with_indices_backward(
            dy, t, [3, 3], [2, 2], [1, 1], [1, 1], False, indices
        ),
        aten.avg_pool2d_backward.default: lambda t: aten.avg_pool2d_backward(
            dy, t, [3, 3], [2, 2], [1, 1], False, True, None
        ),
        aten._adaptive_avg_pool2d_backward.default: lambda t: aten._adaptive_avg_pool2d_backward(
            pooled_grad, t
        ),
    }
    assert calls.keys() == SHAPE_ONLY.keys()
    for call in calls.values():
        actual = call(torch.full_like(x, torch.nan))
        assert torch.equal(actual, call(x))
        assert actual.stride() == call(x).stride()


# --- numbers ------------------------------------------------------------------------------------------


def run(
    graph_passes: list[Pass], loss: Variable, feed: dict[str, torch.Tensor]
) -> list[np.ndarray[Any, Any]]:
    """The loss and all gradients, after these passes on a copy of the program."""
    program = default_main_program().clone()
    reports = rewrite(program, graph_passes)
    assert all(report.changed for report in reports)
    # Without fusions, which match other nodes after the pass, and round otherwise.
    program.build = Build(without_passes=frozenset({"rematerialize", *FUSION_NAMES}))
    gradients = [f"{p.name}@GRAD" for p in program.all_parameters()]
    torch.manual_seed(5)
    fetched: list[np.ndarray[Any, Any]] = Executor().run(
        program, feed=feed, fetch_list=[loss.name, *gradients]
    )
    return fetched


def assert_equal_results(loss: Variable, feed: dict[str, torch.Tensor], *before: Pass) -> None:
    Executor().run(default_startup_program())
    plain = run([*before], loss, feed)
    actual = run([*before, Rematerialize(share=1.0, min_bytes=0)], loss, feed)
    assert len(plain) > 1
    for one, other in zip(actual, plain, strict=True):
        np.testing.assert_array_equal(one, other)


def residual(x: Variable) -> Variable:
    for name in "abc":
        y = conv(x, f"{name}1", torch.tanh if name == "b" else torch.relu)
        x = torch.relu(conv(y, f"{name}2", lambda t: t) + x)
    return F.max_pool2d(x, 2)  # type: ignore[arg-type, no-any-return]


def dropped(x: Variable) -> Variable:
    w = [parameter(f"w{i}", 2048, 2048) for i in range(3)]
    h = F.dropout(torch.relu(F.gelu(x.flatten(1) @ w[0]) @ w[1]), 0.25)  # type: ignore[arg-type]
    return torch.sigmoid(F.silu(h) @ w[2])  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("build", "batch"),
    [
        (residual, 1),
        (dropped, 5),
        pytest.param(residual, 5, marks=pytest.mark.slow),
        pytest.param(dropped, 1, marks=pytest.mark.slow),
    ],
)
def test_results_and_gradients_are_equal(build: Net, batch: int) -> None:
    loss = build(image()).square().mean()
    append_backward(loss)
    assert_equal_results(loss, {"x": torch.randn(batch, 8, 16, 16)})


@pytest.mark.parametrize("layout", [pytest.param([], marks=pytest.mark.slow), [ChannelsLast()]])
def test_results_are_equal_in_both_layouts(layout: list[Pass]) -> None:
    loss = residual(image()).square().mean()
    append_backward(loss)
    assert_equal_results(loss, {"x": torch.randn(3, 8, 16, 16)}, *layout)


@pytest.mark.skipif(unavailable() is not None, reason="the C++ kernels are unavailable")
def test_a_fused_norm_is_computed_again_by_its_own_kernel() -> None:
    loss = residual(image()).square().mean()
    append_backward(loss)
    rewrite(default_main_program(), [FuseBnAct()])
    graph, _ = rematerialized(loss)
    assert "argosy.bn_act_recompute" in recomputed(graph)
    assert_equal_results(loss, {"x": torch.randn(3, 8, 16, 16)})


@pytest.mark.parametrize("shape", [(4, 8), (4, 8, 5), (4, 8, 5, 7)])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_recompute_gives_what_the_norm_gave(shape: tuple[int, ...], affine: bool) -> None:
    x = torch.randn(shape)
    for value in (x, x.to(memory_format=torch.channels_last)) if x.ndim == 4 else (x,):
        weight, bias = (torch.randn(8), torch.randn(8)) if affine else (None, None)
        y, mean, invstd = torch.native_batch_norm(value, weight, bias, None, None, True, 0.1, 1e-5)
        actual = batch_norm_recompute(value, weight, bias, mean, invstd)
        torch.testing.assert_close(actual, y, rtol=1e-6, atol=1e-6)
        assert actual.stride() == y.stride()

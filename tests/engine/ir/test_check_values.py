"""The debug mode of the pass runner: what each wrong value is reported as, and what it leaves alone."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import fx

import argosy as paddle
from argosy.engine.errors import ProgramError
from argosy.engine.ir.check_values import check_values
from argosy.engine.ir.infer import infer
from argosy.engine.ir.variable import Variable
from argosy.engine.passes.base import Pass, Report, run_passes
from tests.fusing import assert_trains_alike, built

aten = torch.ops.aten


def relu_and_transpose(x: Variable) -> Variable:
    return torch.transpose(torch.relu(x), 0, 1)  # type: ignore[arg-type, return-value]  # a Variable


def graph_of(shape: list[int | None]) -> fx.Graph:
    return built(relu_and_transpose, trains=False, shape=shape)[0].graph


@dataclass(frozen=True)
class Plant(Pass):
    """Does something to the first node of an op."""

    name: ClassVar[str] = "plant"

    target: Any
    change: Callable[[fx.Node], None]

    def run(self, graph: fx.Graph) -> Report:
        self.change(graph.find_nodes(op="call_function", target=self.target)[0])
        return Report(1, "planted")


def wrong(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[fx.Node], None]:
    """Replace the value of a node by a function of it."""

    def change(node: fx.Node) -> None:
        with node.meta["val"].fake_mode, torch.no_grad():
            node.meta["val"] = function(node.meta["val"])

    return change


def to_detached_view(node: fx.Node) -> None:
    """Change a new tensor to a view of the input, without its value."""
    node.target, node.args = aten.view.default, (node.args[0], [6, 4])


CASES = {
    "dtype": (aten.relu.default, wrong(lambda v: v.double()), "float64[6, 4] strides (4, 1), new memory"),
    "shape": (aten.relu.default, wrong(lambda v: v[:5].clone()), "float32[5, 4] strides (4, 1), new memory"),
    "strides": (
        aten.relu.default,
        wrong(lambda v: v.t().contiguous().t()),
        "float32[6, 4] strides (1, 6), new memory",
    ),
    "an alias that is none": (
        aten.transpose.int,
        wrong(lambda v: v.clone(memory_format=torch.preserve_format)),
        "float32[4, 6] strides (1, 4), new memory",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_value_is_reported_with_the_pass_the_node_and_both_values(case: str) -> None:
    target, change, recorded = CASES[case]
    with pytest.raises(ProgramError) as caught:
        run_passes(graph_of([6, 4]), [Plant(target, change)])
    text = str(caught.value)
    assert text.startswith("pass plant: ")
    assert "(test_check_values.py:" in text
    assert f"calls {target}: its inputs give float32[" in text
    assert f"its meta 'val' is {recorded};" in text


def test_a_new_alias_is_reported() -> None:
    with pytest.raises(ProgramError, match=r"aliases x, and its meta 'val' is .*, new memory"):
        run_passes(graph_of([6, 4]), [Plant(aten.relu.default, to_detached_view)])


def test_views_of_a_changed_value_are_reported() -> None:
    def change(node: fx.Node) -> None:
        node.meta["val"] = infer(node)  # right, but its transposed view still has the old memory

    with pytest.raises(ProgramError, match=r"transpose.* its inputs give .* aliases relu, .* new memory"):
        run_passes(graph_of([6, 4]), [Plant(aten.relu.default, change)])


@pytest.mark.parametrize("shape", [[6, 4], [None, 4]])
def test_what_was_recorded_is_right(shape: list[int | None]) -> None:
    check_values(graph_of(shape).nodes)


def test_it_is_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARGOSY_CHECK_PASSES")
    target, change, _ = CASES["strides"]
    assert run_passes(graph_of([6, 4]), [Plant(target, change)])[0].text == "planted"


def net(x: Variable) -> Variable:
    nn, functional = paddle.static.nn, paddle.nn.functional
    a = nn.batch_norm(nn.conv2d(x, 8, 3, padding=1, bias_attr=False), act="relu")
    b = nn.batch_norm(nn.conv2d(functional.relu(a), 8, 3, padding=1, groups=8, bias_attr=False))
    return functional.softmax(paddle.fluid.layers.fc(functional.relu(a + b), 5, act="tanh"))


@pytest.mark.parametrize("shape", [[6, 3, 9, 9], [None, 3, 9, 9]])
def test_all_values_of_a_training_program_are_right_after_all_passes(shape: list[int | None]) -> None:
    from argosy.engine.passes import default_passes
    from argosy.static.fusions import fusions
    from argosy.static.strategies import BuildStrategy

    build = BuildStrategy()
    build.fuse_bn_act_ops = build.fuse_elewise_add_act_ops = build.fuse_all_optimizer_ops = True
    build.fuse_relu_depthwise_conv = build.fuse_bn_add_act_ops = True
    main, _, loss = built(net, shape=shape)
    live_out = frozenset([loss.node])
    passes = [fusion.with_live_out(live_out) for fusion in fusions(build)] + default_passes(live_out)
    run_passes(main.graph, passes)
    check_values(main.graph.nodes)


def test_a_transposed_gradient_of_a_fused_addition_is_not_overwritten() -> None:
    """The transposed view of the fused gradient had the memory of the old one, so in_place overwrote what it reads."""
    from argosy.engine.passes.fuse_elewise_add_act import FuseElewiseAddAct

    def symmetric(x: Variable) -> Variable:
        y = paddle.fluid.layers.fc(x, 7, bias_attr=False)
        return paddle.tanh(paddle.transpose(y, [1, 0]) + y)

    assert_trains_alike(symmetric, FuseElewiseAddAct(), shape=[7, 5])

"""fuse_elewise_add_act: the three patterns, what is left alone and why, and that training goes as before."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import pytest

import argosy as paddle
from argosy.engine import kernels
from argosy.engine.ir.variable import Variable
from argosy.engine.passes.fuse_elewise_add_act import FuseElewiseAddAct
from tests.fusing import assert_trains_alike, built, fused

pytestmark = pytest.mark.skipif(kernels.unavailable() is not None, reason=str(kernels.unavailable()))
SHAPE = [6, 10]
F = paddle.nn.functional


def gelu_tanh(x: Variable) -> Variable:
    return F.gelu(x, approximate=True)


ACTIVATIONS: dict[str, Callable[[Variable], Variable]] = {
    "relu": F.relu,
    "tanh": paddle.tanh,
    "sigmoid": F.sigmoid,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "scale": lambda x: x * 0.7,
}


def linear(x: Variable) -> Variable:
    return paddle.matmul(x, paddle.static.create_parameter([10, 10], "float32"))


def behind(act: Callable[[Variable], Variable]) -> Callable[[Variable], Variable]:
    """Twice an activation behind a sum, with the first read twice; then a bias."""

    def net(x: Variable) -> Variable:
        h = act(linear(x) + linear(x))
        h = act(linear(h) + h)
        return act(h + paddle.static.create_parameter([10], "float32"))

    return net


@pytest.mark.parametrize(
    "name",
    [
        "relu",
        "silu",
        "gelu_tanh",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("tanh", "sigmoid", "gelu", "scale")),
    ],
)
def test_an_activation_behind_a_sum_is_taken_and_training_goes_as_before(name: str) -> None:
    net = behind(ACTIVATIONS[name])
    main, _, _ = built(net, shape=SHAPE)
    ops, (report,) = fused(main, FuseElewiseAddAct())
    assert ops["add_act"] + ops["add_act_keep"] == 3
    assert ops["act_backward"] == (0 if name == "scale" else 3)
    assert "3 of 3 additions before an activation fused" in report.text
    assert_trains_alike(net, FuseElewiseAddAct(), shape=SHAPE)
    assert_trains_alike(net, FuseElewiseAddAct(), shape=[None, 10])


def test_the_two_gradients_of_a_value_are_added_on_the_way() -> None:
    main, _, _ = built(behind(F.relu), shape=SHAPE)
    plain, _ = fused(main)
    ops, _ = fused(main, FuseElewiseAddAct())
    assert plain["add"] - ops["add"] == 4  # three sums, and the gradient of the value that is read twice


def test_an_activation_before_a_sum_is_taken_if_only_the_sum_reads_it() -> None:
    def net(x: Variable) -> Variable:
        return linear(x) + F.relu(x)

    main, _, _ = built(net, trains=False, shape=SHAPE)
    ops, (report,) = fused(main, FuseElewiseAddAct())
    assert (ops["act_add"], ops["relu"]) == (1, 0)
    assert report.notices == ("---  detected 1 subgraphs",)
    assert_trains_alike(net, FuseElewiseAddAct(), shape=SHAPE)


def test_a_second_run_changes_nothing() -> None:
    for act in (F.relu, F.gelu):
        main, _, _ = built(behind(act), shape=SHAPE)
        once, _ = fused(main, FuseElewiseAddAct())
        twice, (_, second) = fused(main, FuseElewiseAddAct(), FuseElewiseAddAct())
        assert twice == once
        assert second.changed == 0


def test_a_sum_with_other_readers_is_left_alone() -> None:
    def net(x: Variable) -> Variable:
        total = linear(x) + x
        return F.relu(total) * total

    main, _, _ = built(net, shape=SHAPE)
    ops, (report,) = fused(main, FuseElewiseAddAct())
    assert ops["add_act"] == 0
    assert "skipped: 1 because mul reads the intermediate value too" in report.text


def test_numbers_and_other_spreadings_are_left_alone() -> None:
    def net(x: Variable) -> Variable:
        column = paddle.mean(x, axis=1, keepdim=True)
        return F.relu(linear(x) + column) + F.relu(linear(x) + 1.0)

    main, _, _ = built(net, shape=SHAPE)
    ops, (report,) = fused(main, FuseElewiseAddAct())
    assert ops["add_act"] == 0
    assert "its shapes broadcast in an unsupported way" in report.text
    assert "it adds a number or a multiple" in report.text


def test_other_types_are_left_alone() -> None:
    x = paddle.static.data("x", [4, 4], "float64")
    F.relu(x + x)
    _, (report,) = fused(paddle.static.default_main_program(), FuseElewiseAddAct())
    assert "1 because it is float64" in report.text

"""fuse_relu_depthwise_conv: what it fuses, what it leaves alone and why, and that a step stays the same."""

# SPDX-License-Identifier: Apache-2.0
import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import argosy as paddle
from argosy.engine.ir.build import Build
from argosy.engine.ir.program import Program, default_main_program, program_guard
from argosy.engine.kernels import unavailable
from argosy.engine.passes.base import Report
from argosy.engine.passes.fuse_relu_depthwise_conv import FuseReluDepthwiseConv
from argosy.engine.runtime.scope import Scope, scope_guard
from argosy.utils import unique_name
from tests.fusing import fused
from tests.ranks import ForkServer

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"no kernels: {unavailable()}")
CHANNELS = 8
EXAMPLE = Path(__file__).parents[3] / "examples" / "mobilenet"
functional: Any = paddle.nn.functional


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    with program_guard(Program(), Program()), unique_name.guard(), scope_guard(Scope()):
        paddle.static.default_startup_program().random_seed = 3
        yield


def conv(x: Any, filters: int = CHANNELS, size: int = 3, **options: Any) -> Any:
    return paddle.static.nn.conv2d(x, filters, size, **{"bias_attr": False, "padding": 1, **options})


def depthwise(x: Any, **options: Any) -> Any:
    return conv(x, **{"groups": CHANNELS, "filters": CHANNELS, **options})


def image(dtype: str = "float32") -> Any:
    return paddle.static.data("x", [None, 3, 9, 10], dtype)


def net(x: Any) -> Any:
    """Two matches, one of them strided, behind batch norms; the relu between them feeds a plain convolution."""
    for stride in (1, 2):
        x = paddle.static.nn.batch_norm(conv(x), act="relu")
        x = paddle.static.nn.batch_norm(depthwise(x, stride=stride), act="relu")
    return x


def trained(y: Any) -> Any:
    loss = (y**2).mean()
    paddle.optimizer.SGD(0.1).minimize(loss)
    return loss


def ops() -> Counter[str]:
    return fused(default_main_program())[0]


def fuse() -> tuple[Counter[str], Report]:
    rewrite = FuseReluDepthwiseConv()
    once, (report,) = fused(default_main_program(), rewrite)
    twice, (_, second) = fused(default_main_program(), rewrite, rewrite)
    assert (twice, second.changed) == (once, 0), "a second run changes nothing"
    return once, report


def test_forward_and_backward_become_one_node_each() -> None:
    trained(net(image()))
    relus = ops()["relu"]
    actual, report = fuse()
    said = ("---  detected 2 subgraphs",)
    assert report == Report(2, "2 of 2 relu + depthwise convolution with backward fused", said)
    assert actual["relu_depthwise"] == actual["relu_depthwise_backward"] == 2
    assert actual["relu"] == actual["threshold_backward"] == relus - 2


def test_the_printed_program_shows_them() -> None:
    trained(net(image()))
    default_main_program().build = Build(fusions=(FuseReluDepthwiseConv(),))
    assert "relu_depthwise_backward(" in str(default_main_program())


def test_a_program_for_testing_is_fused_too() -> None:
    net(image())
    actual, report = fuse()
    assert report.text == "2 of 2 relu + depthwise convolution without backward fused"
    assert actual["relu_depthwise"] == 2


def test_a_relu_of_a_feed_needs_no_gradient_of_its_own() -> None:
    x = paddle.static.data("x", [None, CHANNELS, 5, 5], "float32")
    trained(depthwise(functional.relu(x)))
    actual, report = fuse()
    assert report.text == "1 of 1 relu + depthwise convolution with backward fused"
    assert actual["relu_depthwise_backward"] == 1


def test_nothing_is_found_in_a_network_without_depthwise_convolutions() -> None:
    trained(functional.relu(conv(functional.relu(conv(image())))))
    assert fuse()[1] == Report(0, "nothing to fuse")


LEFT_ALONE: dict[str, Callable[[Any], Any]] = {
    "reads relu too": lambda r: depthwise(r) + r,
    "it has a bias": lambda r: depthwise(r, bias_attr=None),
    "its dilation is [2, 2]": lambda r: depthwise(r, dilation=2),
    "it has several filters per channel": lambda r: depthwise(r, filters=2 * CHANNELS),
}


@pytest.mark.parametrize("is_trained", [True, False])
@pytest.mark.parametrize("reason", LEFT_ALONE)
def test_what_the_kernel_cannot_do_is_left_alone_with_the_reason(reason: str, is_trained: bool) -> None:
    y = LEFT_ALONE[reason](functional.relu(conv(image())))
    if is_trained:
        trained(y)
    actual, report = fuse()
    assert report.changed == 0
    assert reason in report.text
    assert actual == ops()


def test_only_the_pair_with_the_reason_is_left_alone() -> None:
    x = depthwise(functional.relu(conv(image())))
    trained(depthwise(functional.relu(x), dilation=2, padding=2))
    _, report = fuse()
    assert report.changed == 1
    assert "1 of 2" in report.text
    assert "1 because its dilation is [2, 2]" in report.text


def test_other_dtypes_are_left_alone() -> None:
    trained(depthwise(functional.relu(conv(image("float64")))))
    _, report = fuse()
    assert report.changed == 0
    assert "it is float64" in report.text


def test_a_relu_that_is_fetched_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    relu = functional.relu(conv(image()))
    loss = trained(depthwise(relu))
    default_main_program().build = Build(fusions=(FuseReluDepthwiseConv(),))
    exe = paddle.static.Executor()
    exe.run(paddle.static.default_startup_program())
    x = np.random.RandomState(0).randn(2, 3, 9, 10).astype("float32")
    with caplog.at_level("INFO", "argosy"):
        assert exe.run(feed={"x": x}, fetch_list=[relu])[0].min() == 0
    assert "its result or gradient is fetched" in caplog.text
    caplog.clear()
    exe.run(feed={"x": x}, fetch_list=[loss])
    assert "detected 1 subgraphs" in caplog.text


def test_a_gradient_of_the_relu_that_others_read_is_left_alone() -> None:
    relu = functional.relu(conv(image()))
    loss = (depthwise(relu) ** 2).mean()
    (gradient,) = paddle.static.gradients(loss, relu)
    (gradient * 2).sum()
    _, report = fuse()
    assert report.changed == 0
    assert "reads the gradient of relu" in report.text


def test_an_input_that_is_changed_after_the_relu_is_left_alone() -> None:
    x = conv(image())
    relu = functional.relu(x)
    with torch.no_grad():
        torch.ops.aten.mul_.Scalar(x, 2.0)
    depthwise(relu)
    _, report = fuse()
    assert report.changed == 0
    assert "is mutated before" in report.text


def steps(is_fused: bool, without: frozenset[str] = frozenset()) -> list[np.ndarray[Any, Any]]:
    """Losses of some batches of different sizes, what a test program gives then, and the parameters."""
    with program_guard(Program(), Program()), unique_name.guard(), scope_guard(Scope()):
        paddle.static.default_startup_program().random_seed = 3
        loss = trained(net(image()))
        program = default_main_program()
        program.build = Build(fusions=(FuseReluDepthwiseConv(),) if is_fused else ())
        program.build = Build(without_passes=without)
        exe = paddle.static.Executor()
        exe.run(paddle.static.default_startup_program())
        results = []
        for batch in (2, 5, 1, 4):
            x = np.random.RandomState(batch).randn(batch, 3, 9, 10).astype("float32")
            results += exe.run(feed={"x": x}, fetch_list=[loss])
        results += exe.run(program.clone(for_test=True), feed={"x": x}, fetch_list=[loss.name])
        parameters = [p.name for p in program.all_parameters()]
        return results + [paddle.static.global_scope().get(name).numpy().copy() for name in parameters]


@pytest.mark.parametrize(
    "without", [frozenset[str](), pytest.param(frozenset({"channels_last"}), marks=pytest.mark.slow)]
)
def test_training_is_the_same_fused_and_unfused(without: frozenset[str]) -> None:
    for one, other in zip(steps(True, without), steps(False, without), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_mobilenet_has_thirteen_and_gives_the_numbers_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLE)
    mobilenet, yardstick = map(importlib.import_module, ("mobilenet", "torch_mobilenet"))
    x = paddle.static.data("x", [None, 3, 64, 64], "float32")
    loss = trained(mobilenet.MobileNetV1(scale=0.25).net(x, 10))
    assert fuse()[1].text == "13 of 13 relu + depthwise convolution with backward fused"
    default_main_program().build = Build(fusions=(FuseReluDepthwiseConv(),))
    exe = paddle.static.Executor()
    exe.run(paddle.static.default_startup_program())
    model = yardstick.TorchMobileNetV1(10, scale=0.25)
    names = yardstick.paddle_names()
    values = {mine: paddle.static.global_scope().get(theirs) for mine, theirs in names.items()}
    values["fc.weight"] = values["fc.weight"].t()
    model.load_state_dict(values, strict=False)
    images = torch.randn(8, 3, 64, 64)
    (actual,) = exe.run(feed={"x": images.numpy()}, fetch_list=[loss])
    # Not the gradients: through 27 norms a relu that rounding turns on or off changes them by percents.
    np.testing.assert_allclose(actual, (model(images) ** 2).mean().item(), rtol=1e-4)


WITHOUT_KERNELS = """
from tests.engine.passes.test_fuse_relu_depthwise_conv import *
trained(net(image()))
fused, report = fuse()
assert report.changed == 0, report
assert "ARGOSY_KERNELS=0" in report.text, report
"""


def test_without_kernels_nothing_changes_and_the_report_says_so(ranks: ForkServer) -> None:
    done = ranks.python("-c", WITHOUT_KERNELS, ARGOSY_KERNELS="0")
    assert done.returncode == 0, done.stderr

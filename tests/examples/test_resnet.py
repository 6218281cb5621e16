"""ResNet of the quick start: names, counts, and equality with eager torch."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import resnet
import torch
import torch.nn.functional as F
from torch_resnet import TorchResNet, as_paddle, paddle_names

import argosy as paddle

pytestmark = pytest.mark.slow

CLASSES = 102


def build(layers: int, pixels: int, dtype: str = "float32", batch: int | None = None) -> Any:
    """The training program of the quick start; returns the loss."""
    image = paddle.static.data("x", [batch, 3, pixels, pixels], dtype)
    label = paddle.static.data("y", [batch, 1], "int64")
    out = resnet.ResNet(layers).net(image, CLASSES)
    return paddle.nn.functional.cross_entropy(out, label)


def copy_weights(model: TorchResNet, layers: int) -> None:
    """Give the program the torch model's values."""
    names = paddle_names(layers)
    for key, value in model.state_dict().items():
        if key in names:
            variable = paddle.static.global_scope().find_var(names[key])
            assert variable is not None, f"{names[key]} is not in the scope"
            variable.get_tensor().set(as_paddle(key, value).numpy())


@pytest.mark.parametrize(
    ("dtype", "pixels", "steps", "loss_error", "grad_error"),
    [("float64", 32, 2, 1e-9, 1e-7), ("float32", 64, 1, 1e-4, 5e-2)],
)
def test_resnet50_equals_eager_in_its_gradients_and_in_its_steps(
    dtype: str, pixels: int, steps: int, loss_error: float, grad_error: float
) -> None:
    """In float32 the rounding of one order of summation or the other is visible after 53 normalisations."""
    torch.manual_seed(1)
    loss = build(50, pixels, dtype, batch=6)
    rate = 2.0**-7  # the same number in float32 and float64
    optimizer = paddle.optimizer.Momentum(rate, 0.9, weight_decay=paddle.regularizer.L2Decay(1e-4))
    _, pairs = optimizer.minimize(loss)
    assert len(pairs) == 161
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    model = TorchResNet(50, CLASSES).to(getattr(torch, dtype))
    copy_weights(model, 50)
    eager = torch.optim.SGD(model.parameters(), rate, 0.9, weight_decay=1e-4)
    x, y = torch.randn(6, 3, pixels, pixels, dtype=getattr(torch, dtype)), torch.randint(0, CLASSES, (6, 1))
    names = paddle_names(50)
    for step in range(steps):
        fetches = [loss, *(g for _, g in pairs)] if step == 0 else [loss]
        fetched = exe.run(feed={"x": x, "y": y}, fetch_list=fetches)
        eager.zero_grad()
        wanted = F.cross_entropy(model(x), y.squeeze(1))
        wanted.backward()
        assert float(fetched[0]) == pytest.approx(wanted.item(), rel=loss_error), f"loss of step {step}"
        if step == 0:
            by_name = {p.name: g for (p, _), g in zip(pairs, fetched[1:], strict=True)}
            for key, parameter in model.named_parameters():
                assert parameter.grad is not None
                grad = as_paddle(key, parameter.grad).numpy()
                error = np.linalg.norm(by_name[names[key]] - grad) / np.linalg.norm(grad)
                assert error < grad_error, f"gradient of {names[key]} is off by {error:.1e} of its norm"
        eager.step()


def test_names_are_those_of_the_quick_start() -> None:
    build(50, 32)
    program = paddle.static.default_main_program()
    names = [p.name for p in program.all_parameters()]
    assert len(names) == 161
    assert names[:3] == ["conv1_weights", "bn_conv1_scale", "bn_conv1_offset"]
    assert names[-2:] == ["fc_0.w_0", "fc_0.b_0"]
    assert {"res2a_branch1_weights", "bn5c_branch2c_offset"} <= set(names)
    for block in ("res2a", "res3d", "res4f", "res5c"):
        assert str(program.var(f"{block}.add.output.5.tmp_0").node.target) == "aten.add.Tensor"
        assert str(program.var(f"{block}.add.output.5.tmp_1").node.target) == "aten.relu.default"
    assert program.var("bn_conv1_mean").persistable


@pytest.mark.parametrize(("layers", "parameters"), [(18, 62), (34, 110), (101, 314), (152, 467)])
def test_the_other_depths_have_their_parameters(layers: int, parameters: int) -> None:
    build(layers, 32)
    actual = {p.name: p.shape for p in paddle.static.default_main_program().all_parameters()}
    with torch.device("meta"):  # names and shapes, without values
        model = TorchResNet(layers, CLASSES)
    wanted = {paddle_names(layers)[k]: tuple(as_paddle(k, p).shape) for k, p in model.named_parameters()}
    assert actual == wanted
    assert len(actual) == parameters


def test_a_wrong_depth_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no ResNet51"):
        resnet.ResNet(51)


def test_one_program_takes_batch_four_and_nine() -> None:
    loss = build(18, 32)
    paddle.optimizer.SGD(0.1).minimize(loss)
    exe = paddle.static.Executor()
    exe.run(paddle.static.default_startup_program())
    for batch in (4, 9, 1 + 1):
        feed = {"x": torch.randn(batch, 3, 32, 32), "y": torch.zeros(batch, 1, dtype=torch.int64)}
        assert np.isfinite(exe.run(feed=feed, fetch_list=[loss])[0]).all()

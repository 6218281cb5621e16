"""Networks: numbers of parameters as published, training in a static program, equality with torch."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy import nn, optimizer, static, vision
from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.engine.ir.program import default_main_program
from argosy.engine.runtime.scope import global_scope
from argosy.vision import models

PUBLISHED = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "vgg11": 132_863_336,
    "mobilenet_v1": 4_231_976,
    "mobilenet_v2": 3_504_872,
}
"""Trainable parameters of the networks for ImageNet, as torchvision and the papers count them."""


def trainable(model: nn.Layer) -> int:
    return sum(int(np.prod(p.shape)) for p in model.parameters() if p.trainable)


@pytest.mark.parametrize("name", PUBLISHED)
def test_numbers_of_parameters_are_those_published(name: str) -> None:
    assert trainable(getattr(models, name)()) == PUBLISHED[name]


def test_lenet_is_the_same_network_in_torch() -> None:
    model = vision.LeNet()
    assert trainable(model) == 61_610
    image = static.data("image", [None, 1, 28, 28])
    logits = model(image)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    x = np.random.default_rng(0).normal(size=(3, 1, 28, 28)).astype("float32")
    (fetched,) = exe.run(feed={"image": x}, fetch_list=[logits])
    weights = [global_scope().get(p.name) for p in default_main_program().all_parameters()]
    h = torch.from_numpy(x)
    for weight, bias, padding in zip(weights[0:4:2], weights[1:4:2], (1, 0), strict=True):
        h = torch.max_pool2d(torch.relu(torch.conv2d(h, weight, bias, padding=padding)), 2)
    h = h.flatten(1)
    for weight, bias in zip(weights[4::2], weights[5::2], strict=True):
        h = h @ weight + bias
    np.testing.assert_allclose(fetched, h.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "build",
    [
        lambda: models.resnet18(num_classes=3),
        lambda: models.mobilenet_v1(scale=0.25, num_classes=3),
        lambda: models.mobilenet_v2(scale=0.25, num_classes=3),
    ],
    ids=["resnet18", "mobilenet_v1", "mobilenet_v2"],
)
@pytest.mark.slow
def test_networks_learn_to_tell_colours_apart(build: Any) -> None:
    image, label = static.data("image", [None, 3, 32, 32]), static.data("label", [None, 1], "int64")
    loss = nn.CrossEntropyLoss()(build()(image), label)
    optimizer.Adam(0.002).minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, (12, 1))
    pixels = rng.normal(0, 0.3, (12, 3, 32, 32)).astype("float32")
    pixels[np.arange(12), labels[:, 0]] += 2
    losses = [
        exe.run(feed={"image": pixels, "label": labels}, fetch_list=[loss])[0].item() for _ in range(10)
    ]
    assert losses[-1] < 0.7 * losses[0]


class TorchWeights:
    """The parameters of a model in the order of its layers, for the same network in torch."""

    def __init__(self, model: nn.Layer) -> None:
        trained = [p for p in model.parameters() if p.trainable]
        self._values = iter([global_scope().get(p.name) for p in trained])

    def conv_bn(self, x: torch.Tensor, stride: int, padding: int, groups: int = 1) -> torch.Tensor:
        """A convolution and a batch norm with its initial statistics."""
        weight, gamma, beta = (next(self._values) for _ in range(3))
        y = torch.conv2d(x, weight, None, stride, padding, groups=groups)
        return F.batch_norm(y, torch.zeros_like(beta), torch.ones_like(beta), gamma, beta, eps=1e-5)

    def linear(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3)) @ next(self._values) + next(self._values)


def torch_resnet18(weights: TorchWeights, x: torch.Tensor) -> torch.Tensor:
    x = F.max_pool2d(weights.conv_bn(x, 2, 3).relu(), 3, 2, 1)
    for number, stride in enumerate((1, 1, 2, 1, 2, 1, 2, 1)):
        residual = weights.conv_bn(weights.conv_bn(x, stride, 1).relu(), 1, 1)
        x = (residual + (weights.conv_bn(x, stride, 0) if number and stride == 2 else x)).relu()
    return weights.linear(x)


def torch_mobilenet_v2(weights: TorchWeights, x: torch.Tensor) -> torch.Tensor:
    x = F.relu6(weights.conv_bn(x, 2, 1))
    for expansion, count, first in (
        (1, 1, 1),
        (6, 2, 2),
        (6, 3, 2),
        (6, 4, 2),
        (6, 3, 1),
        (6, 3, 2),
        (6, 1, 1),
    ):
        for number in range(count):
            h = F.relu6(weights.conv_bn(x, 1, 0)) if expansion > 1 else x
            stride = 1 if number else first
            h = weights.conv_bn(F.relu6(weights.conv_bn(h, stride, 1, groups=h.shape[1])), 1, 0)
            x = x + h if number else h
    return weights.linear(F.relu6(weights.conv_bn(x, 1, 0)))


@pytest.mark.parametrize(
    ("build", "expect"),
    [
        (lambda: models.resnet18(num_classes=3), torch_resnet18),
        (lambda: models.mobilenet_v2(scale=0.25, num_classes=3), torch_mobilenet_v2),
    ],
    ids=["resnet18", "mobilenet_v2"],
)
@pytest.mark.slow
def test_networks_equal_those_in_torch(build: Any, expect: Any) -> None:
    model = build()
    model.eval()
    logits = model(static.data("image", [None, 3, 64, 64]))
    exe = static.Executor()
    exe.run(static.default_startup_program())
    x = np.random.default_rng(0).normal(size=(2, 3, 64, 64)).astype("float32")
    (fetched,) = exe.run(feed={"image": x}, fetch_list=[logits])
    with torch.no_grad():
        expected = expect(TorchWeights(model), torch.from_numpy(x))
    np.testing.assert_allclose(fetched, expected.numpy(), rtol=1e-3, atol=1e-4)


def test_parts_of_networks() -> None:
    features = models.mobilenet_v1(scale=0.25, num_classes=0, with_pool=False)
    assert features(static.data("x", [2, 3, 64, 64])).shape == (2, 256, 2, 2)
    with pytest.raises(ConfigError, match="set_state_dict"):
        models.resnet50(pretrained=True)
    with pytest.raises(ConfigError, match="depth=20"):
        models.ResNet(None, 20)
    with pytest.raises(UnknownNameError, match="resnet19"):
        _ = vision.resnet19

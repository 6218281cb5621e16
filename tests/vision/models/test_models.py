"""Networks: numbers of parameters as published, training in a static program, equality with torch."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch

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


def test_parts_of_networks() -> None:
    features = models.mobilenet_v1(scale=0.25, num_classes=0, with_pool=False)
    assert features(static.data("x", [2, 3, 64, 64])).shape == (2, 256, 2, 2)
    with pytest.raises(ConfigError, match="set_state_dict"):
        models.resnet50(pretrained=True)
    with pytest.raises(ConfigError, match="depth=20"):
        models.ResNet(None, 20)
    with pytest.raises(UnknownNameError, match="resnet19"):
        _ = vision.resnet19

"""The models of the accuracy benchmark: a step takes 20 to 150 ms on one core."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np

import argosy as paddle


def mlp(batch: int = 96) -> tuple[Any, dict[str, Any]]:
    """Three layers of 1024: 2.2 million parameters, 8.8 MB of gradients."""
    x, y = paddle.static.data("x", [None, 1024], "float32"), paddle.static.data("y", [None, 1], "int64")
    h = paddle.static.nn.fc(x, 1024, activation="relu")
    h = paddle.static.nn.fc(h, 1024, activation="relu")
    loss = paddle.nn.functional.cross_entropy(paddle.static.nn.fc(h, 100), y)
    return loss, _feed((batch, 1024), batch)


def mobilenet(batch: int = 8) -> tuple[Any, dict[str, Any]]:
    """MobileNetV1 with half of the channels, at 64 px: 0.9 million parameters, 3.7 MB of gradients in 83 tensors."""
    x, y = paddle.static.data("x", [None, 3, 64, 64], "float32"), paddle.static.data("y", [None, 1], "int64")
    net = paddle.vision.models.MobileNetV1(scale=0.5, num_classes=100)
    return paddle.nn.functional.cross_entropy(net(x), y), _feed((batch, 3, 64, 64), batch)


def transformer(batch: int = 8, length: int = 32, width: int = 256) -> tuple[Any, dict[str, Any]]:
    """Two encoder layers of width 256: 1.6 million parameters, 6.4 MB of gradients in 34 tensors."""
    x = paddle.static.data("x", [None, length, width], "float32")
    y = paddle.static.data("y", [None, 1], "int64")
    layer = paddle.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0)
    h = paddle.nn.TransformerEncoder(layer, 2)(x)
    loss = paddle.nn.functional.cross_entropy(paddle.static.nn.fc(h[:, 0], 100), y)
    return loss, _feed((batch, length, width), batch)


def _feed(shape: tuple[int, ...], batch: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        "x": random.standard_normal(shape, dtype=np.float32),
        "y": random.integers(0, 100, (batch, 1)),
    }


MODELS = {"mlp": mlp, "mobilenet": mobilenet, "transformer": transformer}

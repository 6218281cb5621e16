"""Layers called with keywords: the names of Paddle's forward arguments."""

# SPDX-License-Identifier: Apache-2.0
import inspect

import pytest

from argosy import nn, static

X = """AdaptiveAvgPool2D AvgPool2D Conv2D ELU Embedding GELU Hardswish LeakyReLU LogSoftmax MaxPool2D Maxout PReLU Pad2D
    PixelShuffle ReLU ReLU6 Sigmoid Softmax Softplus Tanh Upsample"""
INPUT = "BatchNorm BatchNorm2D Dropout Dropout2D Flatten GroupNorm InstanceNorm2D LayerNorm Linear"
PAIR = "BCELoss CrossEntropyLoss KLDivLoss L1Loss MSELoss NLLLoss SmoothL1Loss"


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (X, ["x"]),
        (INPUT, ["input"]),
        (PAIR, ["input", "label"]),
        ("BCEWithLogitsLoss", ["logit", "label"]),
        ("CosineSimilarity", ["x1", "x2"]),
        ("MarginRankingLoss", ["input", "other", "label"]),
    ],
    ids=["x", "input", "input, label", "logit", "x1, x2", "other"],
)
def test_forward_has_paddles_argument_names(names: str, wanted: list[str]) -> None:
    for name in names.split():
        parameters = list(inspect.signature(getattr(nn, name).forward).parameters)[1:]
        assert parameters == wanted, name


def test_layers_accept_their_inputs_by_name() -> None:
    x, label = static.data("x", [None, 1, 4, 4]), static.data("label", [None, 1], "int64")
    hidden = nn.Flatten()(input=nn.ReLU()(x=nn.Conv2D(1, 2, 3)(x=x)))
    logits = nn.Dropout(0.5)(input=nn.Linear(8, 3)(input=hidden))
    assert nn.Softmax()(x=logits).shape == (-1, 3)
    assert nn.CrossEntropyLoss()(input=logits, label=label).shape == (1,)
    with pytest.raises(TypeError, match="input"):
        nn.ReLU()(input=x)

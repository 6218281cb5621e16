"""Losses as layers, against torch."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy import nn
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.nn import functional

Agree = Callable[..., None]


def kl_div(x: torch.Tensor, t: torch.Tensor, reduction: str) -> torch.Tensor:
    """F.kl_div, which warns of the mean over all elements that Paddle's is."""
    each = F.kl_div(x, t, reduction="none")
    return {"mean": each.mean(), "sum": each.sum(), "none": each}[reduction]


@pytest.mark.parametrize(
    ("layer", "function", "kinds", "reduction"),
    [
        (nn.MSELoss, F.mse_loss, ("normal", "normal"), "mean"),
        (nn.MSELoss, F.mse_loss, ("normal", "normal"), "sum"),
        (nn.MSELoss, F.mse_loss, ("normal", "normal"), "none"),
        (nn.L1Loss, F.l1_loss, ("normal", "normal"), "mean"),
        (nn.SmoothL1Loss, F.huber_loss, ("normal", "normal"), "sum"),
        (nn.BCELoss, F.binary_cross_entropy, ("unit", "unit"), "mean"),
        (nn.BCEWithLogitsLoss, F.binary_cross_entropy_with_logits, ("normal", "unit"), "none"),
        (nn.KLDivLoss, kl_div, ("normal", "unit"), "mean"),
    ],
)
def test_losses_are_torch_s(agree: Agree, layer: Any, function: Any, kinds: Any, reduction: str) -> None:
    def expect(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = function(x, t, reduction=reduction)
        return out if reduction == "none" else out.reshape(1)

    agree(layer(reduction=reduction), expect, *[((None, 3), kind) for kind in kinds])


def test_losses_of_classes_are_torch_s(agree: Agree) -> None:
    agree(
        nn.CrossEntropyLoss(),
        lambda x, t: F.cross_entropy(x, t[:, 0]).reshape(1),
        (None, 4),
        ((None, 1), 4),
    )
    agree(
        nn.CrossEntropyLoss(ignore_index=1, reduction="sum"),
        lambda x, t: F.cross_entropy(x, t, ignore_index=1, reduction="sum").reshape(1),
        (None, 4),
        ((None,), 4),
    )
    agree(
        nn.NLLLoss(),
        lambda x, t: F.nll_loss(x, t).reshape(1),
        (None, 4),
        ((None,), 4),
    )
    agree(
        nn.MarginRankingLoss(0.3),
        lambda a, b, t: (-t * (a - b) + 0.3).clamp(min=0).mean().reshape(1),
        (None,),
        (None,),
        (None,),
    )


def test_ctc_and_hsigmoid_are_those_of_functional() -> None:
    program = default_main_program()
    x, label = program.data("x", [None, 4], "float32"), program.data("label", [None, 1], "int64")
    logits = program.data("logits", [6, 2, 5], "float32")
    words, lengths = program.data("words", [2, 3], "int64"), program.data("lengths", [2], "int64")
    tree = nn.HSigmoidLoss(4, 5)
    pairs = [
        (tree(x, label), functional.hsigmoid_loss(x, label, 5, tree.weight, tree.bias)),
        (nn.CTCLoss()(logits, words, lengths, lengths), functional.ctc_loss(logits, words, lengths, lengths)),
    ]
    feed = {
        "x": np.ones((3, 4), "float32"),
        "label": [[0], [1], [4]],
        "logits": np.ones((6, 2, 5), "float32"),
        "words": [[1, 2, 3], [1, 2, 0]],
        "lengths": [3, 2],
    }
    exe = Executor()
    exe.run(default_startup_program())
    got = exe.run(feed=feed, fetch_list=[v for pair in pairs for v in pair])
    np.testing.assert_array_equal(got[0], got[1])
    np.testing.assert_array_equal(got[2], got[3])
    assert got[0].shape == (3, 1)
    with pytest.raises(ConfigError, match="only with it"):
        tree(x, label, x, x)

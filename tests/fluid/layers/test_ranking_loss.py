"""Losses of 1.x against torch, or against their formulas."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program, default_startup_program
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import global_scope
from argosy.fluid import layers
from argosy.framework.initializer import Constant
from argosy.framework.layer import ParamAttr

Agree = Callable[..., None]


def test_losses_of_two_variables_are_torch_s(agree: Agree) -> None:
    agree(
        lambda x, y: [
            layers.huber_loss(x, y, 0.5),
            layers.mse_loss(x, y),
            layers.kldiv_loss(x, y, "batchmean"),
        ],
        lambda x, y: [
            F.huber_loss(x, y, reduction="none", delta=0.5),
            F.mse_loss(x, y).reshape(1),
            F.kl_div(x, y, reduction="batchmean").reshape(1),
        ],
        ((None, 3), "unit"),
        ((None, 3), "unit"),
        rtol=1e-4,
    )


def test_losses_of_pairs_are_their_formulas(agree: Agree) -> None:
    def pairs(x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        rows = [
            sum(-F.logsigmoid(row[c] - row[j]) for j in range(4) if j != c) / 3
            for row, c in zip(x, label.flatten().tolist(), strict=True)
        ]
        return torch.stack(rows).unsqueeze(1)

    agree(
        lambda x, y, t, c: [
            layers.rank_loss(t, x, y),
            layers.margin_rank_loss(t, x, y, 0.3),
            layers.bpr_loss(x, c),
        ],
        lambda x, y, t, c: [
            torch.log(1 + torch.exp(x - y)) - t * (x - y),
            torch.relu(-t * (x - y) + 0.3),
            pairs(x, c),
        ],
        (None, 4),
        (None, 4),
        ((None, 4), "fixed"),
        ((None, 1), 4),
        rtol=1e-4,
    )


def test_the_teacher_s_label_has_four_ranges(agree: Agree) -> None:
    def formula(x: torch.Tensor) -> torch.Tensor:
        entropy = lambda z, t: F.binary_cross_entropy_with_logits(z, t * torch.ones_like(z), reduction="none")  # noqa: E731
        rows = [entropy(x[0], 0), entropy(x[1], 1), entropy(x[2], 0) + entropy(x[2], 0.3)]
        return torch.stack([*rows, entropy(x[3], 1) + entropy(x[3], 0.4)])

    def build(x: Any) -> Any:
        label = layers.assign(np.array([[-2.0], [-1.0], [0.3], [1.4]], "float32"))
        return layers.teacher_student_sigmoid_loss(x, label)

    agree(build, formula, (4, 1), rtol=1e-4)


def test_centers_move_towards_their_samples() -> None:
    x, label = layers.data("x", [2]), layers.data("label", [1], dtype="int64")
    centers = ParamAttr(name="centers", initializer=Constant(1.0))
    loss = layers.center_loss(x, label, 3, 0.5, centers)
    exe = Executor()
    exe.run(default_startup_program())
    samples = np.array([[3.0, 1.0], [5.0, 1.0], [0.0, 0.0]], "float32")
    (got,) = exe.run(feed={"x": samples, "label": [[0], [0], [2]]}, fetch_list=[loss])
    np.testing.assert_allclose(got, [[2.0], [8.0], [1.0]])
    # class 0: 1 + 0.5 · (2 + 4) / 3; class 2: 1 - 0.5 · 1 / 2
    np.testing.assert_allclose(global_scope().get("centers").numpy(), [[2, 1], [1, 1], [0.75, 0.75]])


def test_hsigmoid_and_warpctc_are_those_of_functional_with_parameters() -> None:
    x, label = layers.data("x", [4]), layers.data("label", [1], dtype="int64")
    cost = layers.hsigmoid(x, label, 5, param_attr="w", bias_attr="b")
    logits = layers.data("logits", [-1, 2, 5], append_batch_size=False)
    words = layers.data("words", [2, 3], append_batch_size=False, dtype="int64")
    lengths = layers.data("lengths", [2], append_batch_size=False, dtype="int64")
    ctc = layers.warpctc(logits, words, input_length=lengths, label_length=lengths)
    exe = Executor()
    exe.run(default_startup_program())
    feed = {
        "x": np.ones((3, 4), "float32"),
        "label": [[0], [1], [4]],
        "logits": np.zeros((6, 2, 5), "float32"),
        "words": [[1, 2, 3], [1, 2, 0]],
        "lengths": [3, 2],
    }
    got, of_ctc = exe.run(feed=feed, fetch_list=[cost, ctc])
    assert got.shape == (3, 1)
    assert of_ctc.shape == (2, 1)
    assert global_scope().get("w").shape == (4, 4)
    assert global_scope().get("b").shape == (4, 1)
    expected = F.ctc_loss(
        torch.zeros(6, 2, 5).log_softmax(-1),
        torch.tensor(feed["words"]),
        torch.tensor([3, 2]),
        torch.tensor([3, 2]),
        reduction="none",
    )
    np.testing.assert_allclose(of_ctc[:, 0], expected, rtol=1e-5)


def test_mean_iou_and_greedy_decoding_count_as_documented() -> None:
    predicted, true = layers.data("p", [4], dtype="int64"), layers.data("t", [4], dtype="int64")
    scores, lengths = layers.data("scores", [4, 3]), layers.data("lengths", [1], dtype="int64")
    outs = [*layers.mean_iou(predicted, true, 4), *layers.ctc_greedy_decoder(scores, 0, lengths, -1)]
    best = np.array([[1, 1, 0, 1], [2, 0, 0, 1]])
    feed = {
        "p": [[0, 0, 1, 1]],
        "t": [[0, 1, 1, 2]],
        "scores": np.eye(3, dtype="float32")[best],
        "lengths": [[4], [3]],
    }
    mean, wrong, correct, labels, count = Executor().run(feed=feed, fetch_list=outs)
    np.testing.assert_array_equal(correct, [1, 1, 0, 0])
    np.testing.assert_array_equal(wrong, [1, 2, 1, 0])
    np.testing.assert_allclose(mean, [(1 / 2 + 1 / 3 + 0) / 3], rtol=1e-6)
    np.testing.assert_array_equal(labels, [[1, 1, -1, -1], [2, -1, -1, -1]])
    np.testing.assert_array_equal(count, [[2], [1]])


def test_unsupported_arguments_raise() -> None:
    x = default_main_program().data("x", [2, 3], "float32")
    for call, message in (
        (lambda: layers.warpctc(x, x), "give padded data"),
        (lambda: layers.ctc_greedy_decoder(x, 0), "give a padded batch"),
        (lambda: layers.teacher_student_sigmoid_loss(x, x, 3.0), "clip the input"),
        (lambda: layers.hsigmoid(x, x, 3, is_custom=True), "needs path_table"),
        (lambda: layers.center_loss(x, x, 3, 0.1, False), "no centers"),
    ):
        with pytest.raises(ConfigError, match=message):
            call()

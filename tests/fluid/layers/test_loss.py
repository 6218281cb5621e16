"""Losses of 1.x: one number a sample."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError
from argosy.engine.ir.backward import gradients
from argosy.engine.ir.program import default_main_program
from argosy.engine.runtime.executor import Executor
from argosy.fluid import layers

Agree = Callable[..., None]


def test_cross_entropy_is_of_probabilities(agree: Agree) -> None:
    agree(
        layers.cross_entropy,
        lambda p, t: -p.gather(1, t).log(),
        ((None, 4), "unit"),
        ((None, 1), 4),
    )
    agree(
        layers.cross_entropy,
        lambda p, t: -p.gather(1, t[:, None]).log(),
        ((None, 4), "unit"),
        ((None,), 4),
    )


def test_cross_entropy_of_soft_labels(agree: Agree) -> None:
    agree(
        lambda p, t: layers.cross_entropy(p, t, soft_label=True),
        lambda p, t: -(t * p.log()).sum(1, keepdim=True),
        ((None, 4), "unit"),
        ((None, 4), "unit"),
    )


def test_ignored_labels_cost_nothing_and_train_nothing(agree: Agree) -> None:
    agree(
        lambda p, t: layers.cross_entropy(p, t, ignore_index=2),
        lambda p, t: torch.where(t == 2, 0.0, -p.gather(1, t).log()),
        ((None, 4), "unit"),
        ((None, 1), 4),
    )
    agree(
        lambda x, t: layers.softmax_with_cross_entropy(x, t, ignore_index=2),
        lambda x, t: F.cross_entropy(x, t[:, 0], ignore_index=2, reduction="none")[:, None],
        (None, 4),
        ((None, 1), 4),
    )


def test_the_default_ignore_index_is_minus_100() -> None:
    p, t = layers.data("p", [2]), layers.data("t", [1], dtype="int64")
    feed = {"p": np.array([[0.5, 0.5]] * 2, dtype="float32"), "t": np.array([[1], [-100]])}
    fetched = Executor().run(feed=feed, fetch_list=[layers.cross_entropy(p, t)])[0]
    np.testing.assert_allclose(fetched, [[np.log(2)], [0]], rtol=1e-6)


def test_a_probability_of_zero_costs_much_but_not_infinity() -> None:
    p, t = layers.data("p", [2], stop_gradient=False), layers.data("t", [1], dtype="int64")
    loss = layers.cross_entropy(p, t)
    (grad,) = gradients([loss], [p])
    assert grad is not None
    feed = {"p": np.array([[1.0, 0.0]], dtype="float32"), "t": np.array([[1]])}
    cost, slope = Executor().run(feed=feed, fetch_list=[loss, grad])
    assert cost.item() == pytest.approx(1e20)
    assert np.isfinite(slope).all()


def test_softmax_with_cross_entropy_is_torch_s(agree: Agree) -> None:
    agree(
        layers.softmax_with_cross_entropy,
        lambda x, t: F.cross_entropy(x, t[:, 0], reduction="none")[:, None],
        (None, 4),
        ((None, 1), 4),
    )
    agree(
        lambda x, t: layers.softmax_with_cross_entropy(x, t, soft_label=True),
        lambda x, t: -(t * x.log_softmax(1)).sum(1, keepdim=True),
        (None, 4),
        ((None, 4), "unit"),
    )


def test_softmax_with_cross_entropy_along_another_axis_with_the_softmax(agree: Agree) -> None:
    agree(
        lambda x, t: layers.softmax_with_cross_entropy(x, t, axis=1, return_softmax=True),
        lambda x, t: (F.cross_entropy(x, t[:, 0], reduction="none")[:, None], x.softmax(1)),
        (None, 4, 3),
        ((None, 1, 3), 4),
    )


def test_the_softmax_comes_first_among_the_names() -> None:
    x, t = layers.data("x", [4]), layers.data("t", [1], dtype="int64")
    assert layers.softmax_with_cross_entropy(x, t).name == "softmax_with_cross_entropy_0.tmp_1"
    loss, softmax = layers.softmax_with_cross_entropy(x, t, return_softmax=True)
    assert (softmax.name, loss.name) == tuple(f"softmax_with_cross_entropy_1.tmp_{i}" for i in (0, 1))
    assert layers.cross_entropy(softmax, t).name == "cross_entropy_0.tmp_0"


def test_sigmoid_cross_entropy_is_torch_s(agree: Agree) -> None:
    agree(
        layers.sigmoid_cross_entropy_with_logits,
        lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="none"),
        (None, 3),
        ((None, 3), "unit"),
    )


@pytest.mark.parametrize("normalize", [False, True])
def test_sigmoid_cross_entropy_ignores_and_normalises(normalize: bool) -> None:
    x, t = layers.data("x", [2]), layers.data("t", [2])
    out = layers.sigmoid_cross_entropy_with_logits(x, t, ignore_index=-1, normalize=normalize)
    feed = {"x": np.zeros((2, 2), dtype="float32"), "t": np.array([[1, 0], [-1, -1]], dtype="float32")}
    cost = np.log(2) / (2 if normalize else 1)
    np.testing.assert_allclose(
        Executor().run(feed=feed, fetch_list=[out])[0], [[cost] * 2, [0] * 2], rtol=1e-6
    )


def test_square_error_cost_and_log_loss(agree: Agree) -> None:
    agree(layers.square_error_cost, lambda x, t: (x - t) ** 2, (None, 3), (None, 3))
    agree(
        layers.log_loss,
        lambda p, t: -t * (p + 1e-4).log() - (1 - t) * (1 - p + 1e-4).log(),
        ((None, 1), "unit"),
        ((None, 1), "unit"),
    )


def test_smooth_l1_adds_each_row_up(agree: Agree) -> None:
    agree(
        layers.smooth_l1,
        lambda x, y: F.smooth_l1_loss(x, y, reduction="none").flatten(1).sum(1, keepdim=True),
        (None, 3, 2),
        (None, 3, 2),
    )

    def weighted(
        x: torch.Tensor, y: torch.Tensor, inside: torch.Tensor, outside: torch.Tensor
    ) -> torch.Tensor:
        d = inside * (x - y)
        each = F.smooth_l1_loss(d, torch.zeros_like(d), reduction="none", beta=0.25) * outside
        return each.sum(1, keepdim=True)

    agree(lambda x, y, i, o: layers.smooth_l1(x, y, i, o, sigma=2.0), weighted, *[(None, 3)] * 4)


def test_labels_are_smoothed_towards_all_classes_or_a_prior(agree: Agree) -> None:
    agree(layers.label_smooth, lambda t: 0.9 * t + 0.1 / 4, ((None, 4), "unit"))
    agree(
        lambda t, p: layers.label_smooth(t, p, 0.3),
        lambda t, p: 0.7 * t + 0.3 * p,
        ((None, 4), "unit"),
        ((1, 4), "unit"),
    )


def test_losses_reject_invalid_arguments() -> None:
    x = layers.data("x", [3])
    with pytest.raises(ConfigError, match="give both or none"):
        layers.smooth_l1(x, x, inside_weight=x)
    with pytest.raises(ConfigError, match="epsilon=2 is out of range"):
        layers.label_smooth(x, epsilon=2)
    assert not default_main_program().all_parameters()

"""Losses: values and gradients against torch, shapes as in Paddle."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy import tensor
from argosy.engine.errors import ConfigError
from argosy.engine.ir.program import default_main_program
from argosy.engine.runtime.executor import Executor
from argosy.nn import functional

Agree = Callable[..., None]

REDUCTIONS = ["mean", "sum", "none"]


def shaped(out: torch.Tensor) -> torch.Tensor:
    return out.reshape(1) if out.ndim == 0 else out


# --- classes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("label", [(None,), (None, 1)])
def test_cross_entropy_takes_labels_of_both_shapes(agree: Agree, reduction: str, label: Any) -> None:
    def expect(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = F.cross_entropy(x, y.flatten(), reduction=reduction)
        return out.reshape(y.shape) if reduction == "none" else out.reshape(1)

    agree(lambda x, y: functional.cross_entropy(x, y, reduction=reduction), expect, (None, 4), (label, 4))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy_weighs_classes_and_ignores_a_label(agree: Agree, reduction: str) -> None:
    agree(
        lambda x, y, w: functional.cross_entropy(x, y, w, 1, reduction),
        lambda x, y, w: shaped(F.cross_entropy(x, y, w, ignore_index=1, reduction=reduction)),
        (None, 4),
        ((None,), 4),
        ((4,), "fixed"),
    )


@pytest.mark.parametrize("axis", [1, -1])
def test_cross_entropy_of_pictures(agree: Agree, axis: int) -> None:
    def expect(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x.movedim(axis, 1), y).reshape(1)

    x = (None, 4, 3, 2) if axis == 1 else (None, 3, 2, 4)
    agree(lambda x, y: functional.cross_entropy(x, y, axis=axis), expect, x, ((None, 3, 2), 4))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy_takes_soft_labels(agree: Agree, reduction: str) -> None:
    def expect(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = -(y * x.log_softmax(1)).sum(1, keepdim=True)
        return loss if reduction == "none" else getattr(loss, reduction)().reshape(1)

    feeds = ((None, 4), ((None, 4), "unit"))
    agree(lambda x, y: functional.cross_entropy(x, y, None, -100, reduction, True), expect, *feeds)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy_weighs_soft_labels(agree: Agree, reduction: str) -> None:
    def expect(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        share = (y * w).sum(1, keepdim=True)
        loss = -(y * x.log_softmax(1)).sum(1, keepdim=True) * share
        if reduction == "mean":
            return (loss.sum() / share.sum()).reshape(1)
        return loss if reduction == "none" else loss.sum().reshape(1)

    feeds = ((None, 4), ((None, 4), "unit"), ((4,), "positive"))
    agree(
        lambda x, y, w: functional.cross_entropy(x, y, w, reduction=reduction, soft_label=True),
        expect,
        *feeds,
    )


def test_cross_entropy_takes_probabilities(agree: Agree) -> None:
    agree(
        lambda x, y: functional.cross_entropy(functional.softmax(x), y, use_softmax=False),
        lambda x, y: F.cross_entropy(x, y).reshape(1),
        (None, 4),
        ((None,), 4),
    )


@pytest.mark.parametrize("label", [(None,), (None, 1)])
def test_softmax_with_cross_entropy_keeps_the_axis(agree: Agree, label: Any) -> None:
    def expect(x: torch.Tensor, y: torch.Tensor) -> Any:
        loss = F.cross_entropy(x, y.flatten(), reduction="none", ignore_index=2).unsqueeze(1)
        return loss, x.softmax(1)

    agree(
        lambda x, y: functional.softmax_with_cross_entropy(x, y, ignore_index=2, return_softmax=True),
        expect,
        (None, 4),
        (label, 4),
    )


def test_softmax_with_cross_entropy_takes_soft_labels_on_any_axis(agree: Agree) -> None:
    agree(
        lambda x, y: functional.softmax_with_cross_entropy(x, y, True, axis=1),
        lambda x, y: -(y * x.log_softmax(1)).sum(1, keepdim=True),
        (None, 4, 3),
        ((None, 4, 3), "unit"),
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_loss_is_torch_s(agree: Agree, reduction: str) -> None:
    agree(
        lambda x, y, w: functional.nll_loss(x, y, w, 0, reduction),
        lambda x, y, w: shaped(F.nll_loss(x, y, w, ignore_index=0, reduction=reduction)),
        (None, 4, 3),
        ((None, 3), 4),
        ((4,), "fixed"),
    )


@pytest.mark.parametrize("reduction", [*REDUCTIONS, "batchmean"])
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")  # torch explains its name for the same thing
def test_kl_div_is_torch_s(agree: Agree, reduction: str) -> None:
    agree(
        lambda x, y: functional.kl_div(x, y, reduction),
        lambda x, y: shaped(F.kl_div(x, y, reduction=reduction)),
        (None, 4),
        ((None, 4), "unit"),
    )


def test_dice_loss_measures_overlap(agree: Agree) -> None:
    def expect(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        marked = F.one_hot(y.squeeze(-1), 3).float()
        overlap = (x * marked).sum((1, 2))
        return (1 - 2 * overlap / (x.sum((1, 2)) + marked.sum((1, 2)) + 1e-5)).mean().reshape(1)

    agree(functional.dice_loss, expect, ((None, 5, 3), "unit"), ((None, 5, 1), 3))


# --- yes or no ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropies_are_torch_s(agree: Agree, reduction: str) -> None:
    unit, weight = ((None, 3), "unit"), ((3,), "fixed")
    agree(
        lambda x, y, w: functional.binary_cross_entropy(x, y, w, reduction),
        lambda x, y, w: shaped(F.binary_cross_entropy(x, y, w.expand_as(x), reduction=reduction)),
        unit,
        unit,
        weight,
    )
    agree(
        lambda x, y, w, p: functional.binary_cross_entropy_with_logits(x, y, w, reduction, p),
        lambda x, y, w, p: shaped(
            F.binary_cross_entropy_with_logits(x, y, w, reduction=reduction, pos_weight=p)
        ),
        (None, 3),
        unit,
        weight,
        weight,
    )


def test_binary_cross_entropies_work_without_weights(agree: Agree) -> None:
    unit = ((None, 1), "unit")
    agree(functional.binary_cross_entropy, lambda x, y: F.binary_cross_entropy(x, y).reshape(1), unit, unit)
    agree(
        functional.binary_cross_entropy_with_logits,
        lambda x, y: F.binary_cross_entropy_with_logits(x, y).reshape(1),
        (None, 1),
        unit,
    )


def test_log_loss_is_its_formula(agree: Agree) -> None:
    def expect(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return -y * (x + 1e-4).log() - (1 - y) * (1 - x + 1e-4).log()

    agree(functional.log_loss, expect, ((None, 1), "unit"), ((None, 1), "unit"))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_focal_loss_is_its_formula(agree: Agree, reduction: str) -> None:
    def expect(x: torch.Tensor, y: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        p = x.sigmoid()
        p_t, alpha_t = p * y + (1 - p) * (1 - y), 0.3 * y + 0.7 * (1 - y)
        loss = alpha_t * (1 - p_t) ** 1.5 * F.binary_cross_entropy_with_logits(x, y, reduction="none") / n
        return loss if reduction == "none" else getattr(loss, reduction)().reshape(1)

    agree(
        lambda x, y, n: functional.sigmoid_focal_loss(x, y, n, 0.3, 1.5, reduction),
        expect,
        (None, 3),
        ((None, 3), "unit"),
        ((1,), "positive"),
        rtol=1e-4,
    )


def test_focal_loss_adds_up_by_default() -> None:
    x, y = tensor.zeros([2, 2]), tensor.ones([2, 2])
    (fetched,) = Executor().run(default_main_program(), {}, [functional.sigmoid_focal_loss(x, y)])
    np.testing.assert_allclose(fetched, [4 * 0.25 * 0.25 * np.log(2)], rtol=1e-6)


# --- distances ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_distances_are_torch_s(agree: Agree, reduction: str) -> None:
    feeds = ((None, 3), (None, 3))
    for name in ("mse_loss", "l1_loss"):
        agree(
            lambda x, y, f=name: getattr(functional, f)(x, y, reduction),
            lambda x, y, f=name: shaped(getattr(F, f)(x, y, reduction=reduction)),
            *feeds,
        )
    agree(
        lambda x, y: functional.smooth_l1_loss(x, y, reduction, 0.6),
        lambda x, y: shaped(F.huber_loss(x, y, reduction, 0.6)),
        *feeds,
    )
    agree(
        lambda x, o, y: functional.margin_ranking_loss(x, o, y, 0.2, reduction),
        lambda x, o, y: shaped(F.margin_ranking_loss(x, o, y, 0.2, reduction=reduction)),
        *feeds,
        (None, 3),
    )


def test_square_error_cost_is_not_reduced(agree: Agree) -> None:
    agree(functional.square_error_cost, lambda x, y: (x - y) ** 2, (None, 1), (None, 1))


@pytest.mark.parametrize(
    "name", ["mse_loss", "l1_loss", "smooth_l1_loss", "kl_div", "cross_entropy", "nll_loss"]
)
def test_an_unknown_reduction_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match="average"):
        getattr(functional, name)(tensor.ones([2, 2]), tensor.ones([2, 2]), reduction="average")

"""Losses. `reduction` is 'mean' or 'sum', of shape [1], or 'none'."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply
from argosy.tensor.arguments import no_scalar, one_axis


def _checked(kind: str, reduction: str, *more: str) -> str:
    known = ("none", "mean", "sum", *more)
    if reduction not in known:
        raise ConfigError(f"{kind}: reduction={reduction!r} is not known; use one of {', '.join(known)}")
    return reduction


def _reduced(loss: torch.Tensor, reduction: str) -> torch.Tensor:
    if reduction == "none":
        return loss
    return (loss.mean() if reduction == "mean" else loss.sum()).reshape(1)


# --- classes ------------------------------------------------------------------------------------------------


def cross_entropy(
    input: Variable,
    label: Variable,
    weight: Variable | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    soft_label: bool = False,
    axis: int = -1,
    name: str | None = None,
    *,
    use_softmax: bool = True,
) -> Any:
    """-log(softmax(input)) at the label, of shape [N] or [N, 1], or weighted by `soft_label` probabilities.

    `weight`: one for each class; the mean is then the weighted one. `ignore_index`: labels that are ignored.
    `use_softmax=False` (Paddle 2.1): the input holds probabilities already.
    """
    _checked("cross_entropy", reduction)
    dim = one_axis("cross_entropy", axis, input.ndim)

    def entropy(x: torch.Tensor, label: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        first = x.movedim(dim, 1)
        logs = torch.log_softmax(first, 1) if use_softmax else torch.log(first).contiguous()
        if soft_label:
            return _soft_entropy(logs.movedim(1, dim), label, weight, dim, reduction)
        ids = label.squeeze(dim) if label.ndim == x.ndim else label
        out = F.nll_loss(logs, ids.long(), weight, ignore_index=ignore_index, reduction=reduction)
        if reduction == "none":
            return out.unsqueeze(dim) if label.ndim == x.ndim else out
        return out.reshape(1)

    return apply("cross_entropy", entropy, input, label, weight, name=name)


def _soft_entropy(
    logs: torch.Tensor, label: torch.Tensor, weight: torch.Tensor | None, dim: int, reduction: str
) -> torch.Tensor:
    loss = -(label * logs).sum(dim, keepdim=True)
    if weight is None:
        return _reduced(loss, reduction)
    share = (label * weight.reshape([-1 if d == dim else 1 for d in range(label.ndim)])).sum(
        dim, keepdim=True
    )
    if reduction == "mean":
        return ((loss * share).sum() / share.sum()).reshape(1)
    return _reduced(loss * share, reduction)


def softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    soft_label: bool = False,
    ignore_index: int = -100,
    numeric_stable_mode: bool = True,
    return_softmax: bool = False,
    axis: int = -1,
) -> Any:
    """The cross entropy of every sample, with size 1 along `axis`; with `return_softmax` also the softmax.

    It is always numerically stable.
    """
    dim = one_axis("softmax_with_cross_entropy", axis, logits.ndim)
    ids = (
        label if soft_label or label.ndim == logits.ndim else apply("unsqueeze", torch.unsqueeze, label, dim)
    )
    loss = cross_entropy(logits, ids, None, ignore_index, "none", soft_label, dim)
    return (loss, apply("softmax", torch.softmax, logits, dim)) if return_softmax else loss


def nll_loss(
    input: Variable,
    label: Variable,
    weight: Variable | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    name: str | None = None,
) -> Any:
    """-input at the label; the input holds log-probabilities, [N, C] or [N, C, d1, …]."""
    _checked("nll_loss", reduction)

    def loss(x: torch.Tensor, label: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        return F.nll_loss(
            x.contiguous(), label.long(), weight, ignore_index=ignore_index, reduction=reduction
        )

    return apply("nll_loss", no_scalar(loss), input, label, weight, name=name)


def kl_div(input: Variable, label: Variable, reduction: str = "mean", name: str | None = None) -> Any:
    """label * (log(label) - input), the input being log-probabilities; 'batchmean' divides the sum by N."""
    _checked("kl_div", reduction, "batchmean")

    def divergence(x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        loss = torch.xlogy(label, label) - label * x
        if reduction == "batchmean":
            return (loss.sum() / x.shape[0]).reshape(1)
        return _reduced(loss, reduction)

    return apply("kldiv_loss", divergence, input, label, name=name)


def dice_loss(input: Variable, label: Variable, epsilon: float = 0.00001, name: str | None = None) -> Any:
    """1 - 2 * overlap / (size + size), the mean over the batch; the labels are ids [N, …, 1]."""

    def loss(x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        marked = torch.zeros_like(x).scatter(-1, label.long(), 1.0)
        overlap = (x * marked).flatten(1).sum(1)
        both = x.flatten(1).sum(1) + marked.flatten(1).sum(1)
        return (1 - 2 * overlap / (both + epsilon)).mean().reshape(1)

    return apply("dice_loss", loss, input, label, name=name)


# --- yes or no ----------------------------------------------------------------------------------------------


def binary_cross_entropy(
    input: Variable,
    label: Variable,
    weight: Variable | None = None,
    reduction: str = "mean",
    name: str | None = None,
) -> Any:
    """-(label * log(input) + (1 - label) * log(1 - input)); a logarithm is at least -100."""
    _checked("binary_cross_entropy", reduction)

    def loss(x: torch.Tensor, label: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        out = F.binary_cross_entropy(x, label, reduction="none")
        return _reduced(out if weight is None else out * weight, reduction)

    return apply("bce_loss", loss, input, label, weight, name=name)


def binary_cross_entropy_with_logits(
    logit: Variable,
    label: Variable,
    weight: Variable | None = None,
    reduction: str = "mean",
    pos_weight: Variable | None = None,
    name: str | None = None,
) -> Any:
    """binary_cross_entropy of sigmoid(logit), without overflow; `pos_weight` weighs the positive labels."""
    _checked("binary_cross_entropy_with_logits", reduction)

    def loss(x: torch.Tensor, label: torch.Tensor, *weights: torch.Tensor | None) -> torch.Tensor:
        weight, positive = weights
        out = F.binary_cross_entropy_with_logits(x, label, reduction="none", pos_weight=positive)
        return _reduced(out if weight is None else out * weight, reduction)

    return apply("bce_with_logits", loss, logit, label, weight, pos_weight, name=name)


def log_loss(input: Variable, label: Variable, epsilon: float = 1e-4, name: str | None = None) -> Any:
    """-label * log(input + epsilon) - (1 - label) * log(1 - input + epsilon) for each sample."""

    def loss(x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return -label * torch.log(x + epsilon) - (1 - label) * torch.log(1 - x + epsilon)

    return apply("log_loss", loss, input, label, name=name)


def sigmoid_focal_loss(
    logit: Variable,
    label: Variable,
    normalizer: Variable | None = None,
    alpha: float = 0.25,
    gamma: float = 2.0,
    reduction: str = "sum",
    name: str | None = None,
) -> Any:
    """Lin et al. 2017: alpha * (1 - p) ** gamma * cross entropy, p of the right answer, over `normalizer`."""
    _checked("sigmoid_focal_loss", reduction)

    def loss(x: torch.Tensor, label: torch.Tensor, normalizer: torch.Tensor | None) -> torch.Tensor:
        entropy = F.binary_cross_entropy_with_logits(x, label, reduction="none")
        p = torch.sigmoid(x)
        wrong = 1 - (p * label + (1 - p) * (1 - label))
        out = (alpha * label + (1 - alpha) * (1 - label)) * wrong**gamma * entropy
        return _reduced(out if normalizer is None else out / normalizer, reduction)

    return apply("sigmoid_focal_loss", loss, logit, label, normalizer, name=name)


# --- distances ----------------------------------------------------------------------------------------------


def _distance(
    kind: str,
    function: Callable[..., torch.Tensor],
    input: Variable,
    label: Variable,
    reduction: str,
    name: str | None,
) -> Any:
    _checked(kind, reduction)
    return apply(kind, lambda x, y: _reduced(function(x, y), reduction), input, label, name=name)


def mse_loss(input: Variable, label: Variable, reduction: str = "mean", name: str | None = None) -> Any:
    """(input - label) ** 2."""
    return _distance("mse_loss", lambda x, y: (x - y).square(), input, label, reduction, name)


def square_error_cost(input: Variable, label: Variable) -> Any:
    """(input - label) ** 2 for each element."""
    return _distance("square_error_cost", lambda x, y: (x - y).square(), input, label, "none", None)


def l1_loss(input: Variable, label: Variable, reduction: str = "mean", name: str | None = None) -> Any:
    """|input - label|."""
    return _distance("l1_loss", lambda x, y: (x - y).abs(), input, label, reduction, name)


def smooth_l1_loss(
    input: Variable, label: Variable, reduction: str = "mean", delta: float = 1.0, name: str | None = None
) -> Any:
    """With d = |input - label|: d * d / 2 below delta, else delta * (d - delta / 2), which is Huber's."""

    def huber(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.huber_loss(x, y, "none", delta)

    return _distance("smooth_l1_loss", huber, input, label, reduction, name)


def margin_ranking_loss(
    input: Variable,
    other: Variable,
    label: Variable,
    margin: float = 0.0,
    reduction: str = "mean",
    name: str | None = None,
) -> Any:
    """max(0, margin - label * (input - other)); label 1: the input shall be greater, -1: the other."""
    _checked("margin_ranking_loss", reduction)

    def loss(x: torch.Tensor, other: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return _reduced(torch.relu(margin - label * (x - other)), reduction)

    return apply("margin_rank_loss", loss, input, other, label, name=name)

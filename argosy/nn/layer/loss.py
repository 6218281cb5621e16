"""Losses as layers; with reduction 'mean' or 'sum' they have shape [1]."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.nn import functional
from argosy.nn.layer.function_layer import FunctionLayer


class CrossEntropyLoss(FunctionLayer):
    """-log of the softmax of the input at the label."""

    def __init__(
        self,
        weight: Any = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        soft_label: bool = False,
        axis: int = -1,
        name: str | None = None,
    ) -> None:
        super().__init__(
            functional.cross_entropy,
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
            soft_label=soft_label,
            axis=axis,
            name=name,
        )


class NLLLoss(FunctionLayer):
    """-input at the label; the input holds log-probabilities."""

    def __init__(
        self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", name: str | None = None
    ) -> None:
        super().__init__(
            functional.nll_loss, weight=weight, ignore_index=ignore_index, reduction=reduction, name=name
        )


class MSELoss(FunctionLayer):
    """(input - label)²."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(functional.mse_loss, reduction=reduction)


class L1Loss(FunctionLayer):
    """|input - label|."""

    def __init__(self, reduction: str = "mean", name: str | None = None) -> None:
        super().__init__(functional.l1_loss, reduction=reduction, name=name)


class SmoothL1Loss(FunctionLayer):
    """0.5 · d² where |d| < delta, else delta · |d| - 0.5 · delta², with d = input - label."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0, name: str | None = None) -> None:
        super().__init__(functional.smooth_l1_loss, reduction=reduction, delta=delta, name=name)


class BCELoss(FunctionLayer):
    """Binary cross entropy of probabilities."""

    def __init__(self, weight: Any = None, reduction: str = "mean", name: str | None = None) -> None:
        super().__init__(functional.binary_cross_entropy, weight=weight, reduction=reduction, name=name)


class BCEWithLogitsLoss(FunctionLayer):
    """Binary cross entropy of sigmoid(input)."""

    def __init__(
        self, weight: Any = None, reduction: str = "mean", pos_weight: Any = None, name: str | None = None
    ) -> None:
        super().__init__(
            functional.binary_cross_entropy_with_logits,
            weight=weight,
            reduction=reduction,
            pos_weight=pos_weight,
            name=name,
        )


class KLDivLoss(FunctionLayer):
    """label · (log(label) - input), the input being log-probabilities."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(functional.kl_div, reduction=reduction)


class MarginRankingLoss(FunctionLayer):
    """max(0, -label · (input - other) + margin); forward(input, other, label)."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean", name: str | None = None) -> None:
        super().__init__(functional.margin_ranking_loss, margin=margin, reduction=reduction, name=name)

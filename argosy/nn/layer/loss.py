"""Losses as layers; with reduction 'mean' or 'sum' they have shape [1]."""

# SPDX-License-Identifier: Apache-2.0
from argosy.nn import functional
from argosy.nn.layer.function_layer import FunctionLayer


class CrossEntropyLoss(FunctionLayer, function=functional.cross_entropy, inputs=2):
    """-log of the softmax of the input at the label."""


class NLLLoss(FunctionLayer, function=functional.nll_loss, inputs=2):
    """-input at the label; the input holds log-probabilities."""


class MSELoss(FunctionLayer, function=functional.mse_loss, inputs=2, parameters="reduction"):
    """(input - label)²."""


class L1Loss(FunctionLayer, function=functional.l1_loss, inputs=2):
    """|input - label|."""


class SmoothL1Loss(FunctionLayer, function=functional.smooth_l1_loss, inputs=2):
    """0.5 · d² where |d| < delta, else delta · |d| - 0.5 · delta², with d = input - label."""


class BCELoss(FunctionLayer, function=functional.binary_cross_entropy, inputs=2):
    """Binary cross entropy of probabilities."""


class BCEWithLogitsLoss(FunctionLayer, function=functional.binary_cross_entropy_with_logits, inputs=2):
    """Binary cross entropy of sigmoid(input)."""


class KLDivLoss(FunctionLayer, function=functional.kl_div, inputs=2, parameters="reduction"):
    """label · (log(label) - input), the input being log-probabilities."""


class MarginRankingLoss(FunctionLayer, function=functional.margin_ranking_loss, inputs=3):
    """max(0, -label · (input - other) + margin); forward(input, other, label)."""

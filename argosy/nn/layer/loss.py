"""Losses as layers; with reduction 'mean' or 'sum' they have shape [1]."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.engine.errors import ConfigError
from argosy.nn import functional
from argosy.nn.layer.function_layer import FunctionLayer
from argosy.nn.layer.layers import Layer


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


class CTCLoss(Layer):
    """Connectionist temporal classification; forward(log_probs, labels, input_lengths, label_lengths)."""

    def __init__(self, blank: int = 0, reduction: str = "mean") -> None:
        super().__init__()
        self.blank, self.reduction = blank, reduction

    def forward(
        self,
        log_probs: Any,
        labels: Any,
        input_lengths: Any,
        label_lengths: Any,
        norm_by_times: bool = False,
    ) -> Any:
        lengths = (input_lengths, label_lengths)
        return functional.ctc_loss(log_probs, labels, *lengths, self.blank, self.reduction, norm_by_times)


class HSigmoidLoss(Layer):
    """The cost of the path to the label in a binary tree; see functional.hsigmoid_loss.

    With is_custom, num_classes is the number of inner nodes, and forward takes path_table and path_code.
    """

    def __init__(
        self,
        feature_size: int,
        num_classes: int,
        weight_attr: Any = None,
        bias_attr: Any = None,
        is_custom: bool = False,
        is_sparse: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        if num_classes < 2 and not is_custom:
            raise ConfigError(f"HSigmoidLoss: num_classes={num_classes}; use 2 or more")
        nodes = num_classes if is_custom else num_classes - 1
        self.weight = self.create_parameter([nodes, feature_size], weight_attr)
        self.bias = self.create_parameter([nodes, 1], bias_attr, is_bias=True)
        self._num_classes, self._is_custom, self._name = num_classes, is_custom, name

    def forward(self, input: Any, label: Any, path_table: Any = None, path_code: Any = None) -> Any:
        if self._is_custom != (path_table is not None):
            raise ConfigError(
                "HSigmoidLoss: path_table and path_code go with is_custom=True, and only with it"
            )
        tree = (path_table, path_code)
        return functional.hsigmoid_loss(
            input, label, self._num_classes, self.weight, self.bias, *tree, name=self._name
        )

"""Losses of 1.x: one number per sample, of shape [N, 1] or that of the input; not averaged."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import LayerBuilder, apply
from argosy.nn.functional import common as functional


def cross_entropy(
    input: Variable,
    label: Variable,
    soft_label: bool = False,
    ignore_index: int = -100,
    name: str | None = None,
) -> Any:
    """-log of the probability of the label, [N, 1]; `input` are probabilities, such as the output of softmax.

    The label is [N, 1] (or [N]) of class numbers, or with soft_label=True [N, classes] of probabilities.
    Where the label is `ignore_index` the loss is 0; a probability of 0 costs 1e20, without gradient.
    """

    def loss(p: Tensor, t: Tensor) -> Tensor:
        if soft_label:
            return -(t * _log(p)).sum(-1, keepdim=True)
        return -_log(_at_label(p, t, ignore_index, -1, 1.0))

    return apply("cross_entropy", loss, input, label, name=name)


def softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    soft_label: bool = False,
    ignore_index: int = -100,
    numeric_stable_mode: bool = True,
    return_softmax: bool = False,
    axis: int = -1,
    name: str | None = None,
) -> Any:
    """The cross entropy of softmax(logits) along `axis`, whose size becomes 1; with return_softmax a pair.

    Always numerically stable. The softmax is `name`.tmp_0, if asked for, and the loss `name`.tmp_1.
    """

    def entropy(x: Tensor, t: Tensor) -> Tensor:
        logs = x.log_softmax(axis)
        if soft_label:
            return -(t * logs).sum(axis, keepdim=True)
        return -_at_label(logs, t, ignore_index, axis, 0.0)

    layer = LayerBuilder("softmax_with_cross_entropy", name)
    if not return_softmax:
        layer.skip_names(1)
        return layer.run(entropy, logits, label)
    softmax = layer.run(torch.softmax, logits, axis)
    return layer.run(entropy, logits, label), softmax


def _at_label(values: Tensor, label: Tensor, ignore_index: int, axis: int, ignored: float) -> Tensor:
    """The value at each label, `ignored` where the label is ignore_index; the axis has size 1 then."""
    label = (label.unsqueeze(axis) if label.ndim < values.ndim else label).long()
    skip = label == ignore_index
    return values.gather(axis, label.masked_fill(skip, 0)).masked_fill(skip, ignored)


def _log(p: Tensor) -> Tensor:
    """log(p), and -1e20 without gradient where p is 0."""
    zero = p <= 0
    return p.masked_fill(zero, 1.0).log().masked_fill(zero, -1e20)


def sigmoid_cross_entropy_with_logits(
    x: Variable, label: Variable, ignore_index: int = -100, name: str | None = None, normalize: bool = False
) -> Any:
    """Binary cross entropy of sigmoid(x) for each element; `normalize` divides by the number of counted ones."""

    def loss(logits: Tensor, target: Tensor) -> Tensor:
        counts = target != ignore_index
        each = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        each = torch.where(counts, each, torch.zeros_like(each))
        return each / counts.sum().clamp(min=1) if normalize else each

    return apply("sigmoid_cross_entropy_with_logits", loss, x, label, name=name)


def smooth_l1(
    x: Variable,
    y: Variable,
    inside_weight: Variable | None = None,
    outside_weight: Variable | None = None,
    sigma: float | None = None,
    name: str | None = None,
) -> Any:
    """Smooth L1 loss, summed over each row: [N, 1]; with d = inside_weight · (x - y), times outside_weight:

    0.5 · (sigma · d)² where |d| < 1 / sigma², else |d| - 0.5 / sigma².
    """
    if (inside_weight is None) != (outside_weight is None):
        raise ConfigError("smooth_l1: one of inside_weight and outside_weight is missing; give both or none")
    square = 1.0 if sigma is None else float(sigma) ** 2

    def loss(a: Tensor, b: Tensor, inside: Tensor | None, outside: Tensor | None) -> Tensor:
        d = a - b if inside is None else (a - b) * inside
        each = torch.where(d.abs() < 1 / square, 0.5 * square * d.square(), d.abs() - 0.5 / square)
        each = each if outside is None else each * outside
        return each.flatten(1).sum(1, keepdim=True)

    return apply("smooth_l1_loss", loss, x, y, inside_weight, outside_weight, name=name)


def label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: Any = "float32",
    name: str | None = None,
) -> Any:
    """(1 - epsilon) · label + epsilon · prior_dist, by default 1 / classes; keeps the label's dtype."""
    if not 0 <= epsilon <= 1:
        raise ConfigError(f"label_smooth: epsilon={epsilon} is out of range; use a number from 0 to 1")
    return functional.label_smooth(label, prior_dist, epsilon, name)

"""Losses of 1.x over pairs, classes and distributions; one number per sample unless stated otherwise."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.initializer import Xavier
from argosy.framework.layer import LayerBuilder, apply, create_state, to_param_attr
from argosy.nn.functional import loss as functional
from argosy.nn.functional import structured_loss


def huber_loss(input: Variable, label: Variable, delta: float) -> Any:
    """0.5 · d² where |d| <= delta, else delta · |d| - 0.5 · delta², with d = label - input."""
    return apply("huber_loss", lambda x, y: F.huber_loss(x, y, "none", delta), input, label)


def mse_loss(input: Variable, label: Variable) -> Any:
    """The mean of (input - label)², shape [1]."""
    return functional.mse_loss(input, label)


def kldiv_loss(x: Variable, target: Variable, reduction: str = "mean", name: str | None = None) -> Any:
    """target · (log(target) - x), x being log-probabilities; reduction: mean, batchmean, sum or none."""
    return functional.kl_div(x, target, reduction, name)


def rank_loss(label: Variable, left: Variable, right: Variable, name: str | None = None) -> Any:
    """log(1 + exp(o)) - label · o with o = left - right (RankNet)."""
    return apply("rank_loss", lambda t, a, b: F.softplus(a - b) - t * (a - b), label, left, right, name=name)


def margin_rank_loss(
    label: Variable, left: Variable, right: Variable, margin: float = 0.1, name: str | None = None
) -> Any:
    """max(0, -label · (left - right) + margin)."""
    return apply(
        "margin_rank_loss", lambda t, a, b: (margin - t * (a - b)).clamp(min=0), label, left, right, name=name
    )


def bpr_loss(input: Variable, label: Variable, name: str | None = None) -> Any:
    """The mean of -log(sigmoid(input at the label - input at j)) over the other classes j: [N, 1]."""

    def loss(x: Tensor, label: Tensor) -> Tensor:
        at_label = x.gather(1, label.long().reshape(-1, 1))
        each = F.softplus(x - at_label)  # log(2) at the label itself
        is_label = torch.zeros_like(x).scatter(1, label.long().reshape(-1, 1), 1.0)
        return (each * (1 - is_label)).sum(1, keepdim=True) / (x.shape[1] - 1)

    return apply("bpr_loss", loss, input, label, name=name)


def teacher_student_sigmoid_loss(
    input: Variable, label: Variable, soft_max_up_bound: float = 15.0, soft_max_lower_bound: float = -15.0
) -> Any:
    """The loss of a click and of a teacher's score, both encoded in the label:

    -2 no click, -1 click, 0 … 1 no click and that score, 1 … 2 click and that score plus 1. The bounds limit only the
    gradient of Paddle's op; other bounds than the defaults are not supported.
    """
    if (soft_max_up_bound, soft_max_lower_bound) != (15.0, -15.0):
        raise ConfigError(
            "teacher_student_sigmoid_loss: other bounds than 15 and -15 are not supported; clip the input"
        )

    def loss(x: Tensor, label: Tensor) -> Tensor:
        entropy = x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))
        click = torch.where((label >= 1) | ((label >= -1) & (label < 0)), x, 0.0)
        score = torch.where(label >= 1, label - 1, label)
        return entropy - click + torch.where(label >= 0, entropy - x * score, 0.0)

    return apply("teacher_student_sigmoid_loss", loss, input, label)


def center_loss(
    input: Variable,
    label: Variable,
    num_classes: int,
    alpha: Any,
    param_attr: Any,
    update_center: bool = True,
) -> Any:
    """Half the squared distance to the center of the label's class: [N, 1] (Wen et al. 2016).

    Each run moves the centers, [num_classes, D], by alpha · sum(center - x) / (1 + number of samples), unless
    update_center=False.
    """
    described = to_param_attr(param_attr)
    if described is None:
        raise ConfigError("center_loss: param_attr=False means no centers; give a ParamAttr, a name or None")
    layer = LayerBuilder("center_loss")
    shape = [num_classes, input.shape[1]]
    initializer = described.initializer or Xavier()
    centers = create_state(described.name or f"{layer.name}.w_0", shape, input.dtype, initializer)

    def loss(x: Tensor, label: Tensor, centers: Tensor, rate: Any) -> Tensor:
        ids = label.long().flatten()
        difference = x - centers.detach()[ids]
        if update_center:
            with torch.no_grad():
                count = torch.ones(num_classes, dtype=x.dtype).index_add(0, ids, torch.ones_like(x[:, 0]))
                total = torch.zeros_like(centers).index_add(0, ids, difference.detach())
                centers.add_(total / count.unsqueeze(1) * rate)
        return 0.5 * difference.square().sum(1, keepdim=True)

    return layer.run(loss, input, label, centers, alpha)


def warpctc(
    input: Variable,
    label: Variable,
    blank: int = 0,
    norm_by_times: bool = False,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> Any:
    """The CTC loss [N, 1] of padded logits [steps, N, classes] and labels [N, longest label] with their lengths."""
    if input_length is None or label_length is None:
        raise ConfigError(
            "warpctc: input_length or label_length is missing; give padded data and both lengths"
        )
    each = structured_loss.ctc_loss(input, label, input_length, label_length, blank, "none", norm_by_times)
    return apply("warpctc", lambda x: x.unsqueeze(1), each)


def hsigmoid(
    input: Variable,
    label: Variable,
    num_classes: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
    path_table: Variable | None = None,
    path_code: Variable | None = None,
    is_custom: bool = False,
    is_sparse: bool = False,
) -> Any:
    """nn.functional.hsigmoid_loss with its parameters: weights `name`.w_0 [inner nodes, D], bias .b_0 [inner nodes, 1].

    With is_custom, num_classes is the number of inner nodes.
    """
    if is_custom != (path_table is not None):
        raise ConfigError(
            "hsigmoid: is_custom=True needs path_table and path_code, and they need is_custom=True"
        )
    layer = LayerBuilder("hsigmoid", name)
    nodes = num_classes if is_custom else num_classes - 1
    weight = layer.parameter(param_attr, [nodes, input.shape[1]], input.dtype)
    bias = layer.parameter(bias_attr, [nodes, 1], input.dtype, is_bias=True)
    return structured_loss.hsigmoid_loss(
        input, label, num_classes, weight, bias, path_table, path_code, is_sparse, layer.name
    )


def mean_iou(input: Variable, label: Variable, num_classes: int) -> Any:
    """Segmentation: (mean intersection over union [1], wrong [classes], correct [classes]), counted in int32."""

    def counted(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        predicted, true = x.flatten().long(), y.flatten().long()
        same = (predicted == true).int()
        none = torch.zeros(num_classes, dtype=torch.int32)
        correct = none.index_add(0, true, same)
        wrong = none.index_add(0, true, 1 - same).index_add(0, predicted, 1 - same)
        union = (wrong + correct).float()
        each = torch.where(union > 0, correct / union.clamp(min=1), 0.0)
        return (each.sum() / (union > 0).sum()).reshape(1), wrong, correct

    return tuple(apply("mean_iou", counted, input, label))


def ctc_greedy_decoder(
    input: Variable,
    blank: int,
    input_length: Variable | None = None,
    padding_value: int = 0,
    name: str | None = None,
) -> Any:
    """From probabilities [N, steps, classes] and lengths [N, 1]: (labels [N, steps], their number [N, 1])."""
    if input_length is None:
        raise ConfigError("ctc_greedy_decoder: input_length is missing; give a padded batch and its lengths")

    def decoded(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        best = x.argmax(-1)
        before = torch.nn.functional.pad(best, [1, 0], value=blank)[:, :-1]
        inside = torch.arange(x.shape[1]) < lengths.reshape(-1, 1)
        is_label = inside & (best != blank) & (best != before)
        position = torch.where(is_label, is_label.long().cumsum(1) - 1, x.shape[1])
        packed = best.new_full((x.shape[0], x.shape[1] + 1), padding_value).scatter(1, position, best)
        return packed[:, :-1], is_label.long().sum(1, keepdim=True)

    return tuple(apply("ctc_greedy_decoder", decoded, input, input_length, name=name))

"""Losses over sequences, trees and pairs: ctc_loss, hsigmoid_loss, npair_loss."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import apply


def ctc_loss(
    log_probs: Variable,
    labels: Variable,
    input_lengths: Variable,
    label_lengths: Variable,
    blank: int = 0,
    reduction: str = "mean",
    norm_by_times: bool = False,
) -> Any:
    """Connectionist temporal classification of logits [steps, N, classes], whose log-softmax it computes itself.

    labels are [N, longest label]. "mean" divides each loss by the length of its label first; "sum" and "none" do not.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ConfigError(f"ctc_loss: reduction={reduction!r} is not known; use mean, sum or none")
    if norm_by_times:
        raise ConfigError("ctc_loss: norm_by_times=True is not supported; scale the loss instead")

    def loss(x: Tensor, labels: Tensor, steps: Tensor, lengths: Tensor) -> Tensor:
        sizes = steps.long().flatten(), lengths.long().flatten()
        each = F.ctc_loss(x.log_softmax(-1), labels.long(), *sizes, blank, "none")
        if reduction == "none":
            return each
        return each.sum().reshape(1) if reduction == "sum" else (each / lengths.flatten()).mean().reshape(1)

    return apply("warpctc", loss, log_probs, labels, input_lengths, label_lengths)


def hsigmoid_loss(
    input: Variable,
    label: Variable,
    num_classes: int,
    weight: Variable,
    bias: Variable | None = None,
    path_table: Variable | None = None,
    path_code: Variable | None = None,
    is_sparse: bool = False,
    name: str | None = None,
) -> Any:
    """The cost [N, 1] of the path to the label in a binary tree: a sigmoid decides at each inner node.

    weight is [inner nodes, width], bias [inner nodes, 1]. The default tree is complete, with num_classes - 1 inner
    nodes; another one is given by path_table, the nodes to each label, and path_code, 0 or 1 for each node; a negative
    node ends a path. As in Paddle each step after the end of a shorter path costs log(2). The gradient is dense.
    """
    if (path_table is None) != (path_code is None):
        raise ConfigError("hsigmoid_loss: one of path_table and path_code is missing; give both, or none")

    def loss(x: Tensor, label: Tensor, w: Tensor, b: Tensor | None, table: Any, code: Any) -> Tensor:
        nodes, bits = _complete_tree(label, num_classes) if table is None else (table.long(), code.long())
        inside = nodes >= 0
        nodes = nodes.clamp(min=0)
        scores = torch.matmul(w[nodes], x.unsqueeze(-1)).squeeze(-1)
        scores = scores if b is None else scores + b.reshape(-1)[nodes]
        scores = torch.where(inside, scores, 0.0).clamp(-40.0, 40.0)
        each = F.softplus(scores) - torch.where(inside & (bits > 0), scores, 0.0)
        return each.sum(1, keepdim=True)

    return apply("hsigmoid", loss, input, label, weight, bias, path_table, path_code, name=name)


def _complete_tree(label: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """The inner nodes and bits on the way to each label; -1 after the end of the path.

    Label c is the leaf c + num_classes of a heap. Its bits, from the lowest on, lead through the nodes
    (leaf >> (i + 1)) - 1.
    """
    leaf = label.long().reshape(-1, 1) + num_classes
    shifts = torch.arange((num_classes - 1).bit_length())
    nodes = torch.bitwise_right_shift(leaf, shifts + 1) - 1
    return nodes, torch.bitwise_right_shift(leaf, shifts) & 1


def npair_loss(anchor: Variable, positive: Variable, labels: Variable, l2_reg: float = 0.002) -> Any:
    """The loss [1] of pairs (Sohn 2016): cross entropy of the similarities, and a quarter of l2_reg on both."""

    def loss(a: Tensor, p: Tensor, labels: Tensor) -> Tensor:
        same = (labels.reshape(-1, 1) == labels.reshape(1, -1)).to(a.dtype)
        target = same / same.sum(1, keepdim=True)
        entropy = -(target * (a @ p.t()).log_softmax(-1)).sum(1, keepdim=True)
        size = a.square().sum(1).mean() + p.square().sum(1).mean()
        return ((target * entropy).sum(0).mean() + 0.25 * l2_reg * size).reshape(1)

    return apply("npair_loss", loss, anchor, positive, labels)

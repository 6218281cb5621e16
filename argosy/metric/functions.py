"""Metrics that a program computes: accuracy of a batch, AUC of a batch and of all batches so far.

AUC counts scores in num_thresholds + 1 bins, apart for positive and negative labels; the counts are
variables of the scope that every run adds to, so that ranks can add theirs up (fleet.metrics.auc):

    score 0.0 ··· 1.0     bin = floor(score · num_thresholds)
    stat_pos  [1, bins]   positives so far            batch_stat_pos  [slide_steps, bins]   newest first
    stat_neg  [1, bins]   negatives so far            batch_stat_neg  [slide_steps, bins]
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.variable import Variable
from argosy.framework.initializer import Constant
from argosy.framework.layer import LayerBuilder, create_state


def accuracy(
    input: Variable,
    label: Variable,
    k: int = 1,
    correct: Variable | None = None,
    total: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """The fraction of rows whose label is among the k largest entries, float32 of shape [1].

    `correct` and `total`, if given, are int32 variables of shape [1] that receive the two counts.
    """
    if k < 1:
        raise ConfigError(f"accuracy: k={k} is less than 1; use 1 or more")
    layer = LayerBuilder("accuracy", name)
    ratio, hits, rows = layer.run(_accuracy, input, label, k)
    for count, wanted in ((hits, correct), (rows, total)):
        if wanted is not None:
            layer.run(torch.Tensor.copy_, wanted, count)
    result: Variable = ratio
    return result


def _accuracy(scores: Tensor, label: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    with torch.no_grad():
        guesses = scores.topk(k).indices
        hits = (guesses == label.reshape(-1, 1)).sum(dtype=torch.int32).reshape(1)
        rows = torch.full((1,), label.numel(), dtype=torch.int32)
        return hits / rows, hits, rows


def auc(
    input: Variable,
    label: Variable,
    curve: str = "ROC",
    num_thresholds: int = 4095,
    topk: int = 1,
    slide_steps: int = 1,
) -> tuple[Variable, Variable, list[Variable]]:
    """(AUC so far, AUC of the last `slide_steps` runs, [batch_stat_pos, batch_stat_neg, stat_pos, stat_neg]).

    `input` holds probabilities, [N, 2] (the last column counts) or [N, 1]; both AUCs are float64 of shape
    [1], and 0 as long as one of the classes has not been seen. `slide_steps=0` slides over all batches.
    """
    if curve != "ROC" or topk != 1:
        raise ConfigError(
            f"auc: curve={curve!r}, topk={topk}; use 'ROC' and 1: Paddle accepts others and computes that "
            "all the same"
        )
    if num_thresholds < 1 or slide_steps < 0:
        raise ConfigError(
            f"auc: num_thresholds={num_thresholds}, slide_steps={slide_steps}; "
            "use at least 1 threshold and 0 steps"
        )
    layer = LayerBuilder("auc")
    sizes = [[max(slide_steps, 1), num_thresholds + 1]] * 2 + [[1, num_thresholds + 1]] * 2
    stats = [create_state(names.generate("_generated_var"), size, "int64", Constant(0)) for size in sizes]
    values = layer.run(_auc, input, label, num_thresholds, slide_steps, *stats)
    return values[0], values[1], stats


def _auc(scores: Tensor, label: Tensor, thresholds: int, slide: int, *stats: Tensor) -> tuple[Tensor, Tensor]:
    recent_pos, recent_neg, all_pos, all_neg = stats
    with torch.no_grad():
        positive = (label.reshape(-1) != 0).long()
        bins = (scores.reshape(-1, scores.shape[-1])[:, -1] * thresholds).long()
        empty = torch.zeros(thresholds + 1, dtype=torch.int64)
        for count, recent, total in ((positive, recent_pos, all_pos), (1 - positive, recent_neg, all_neg)):
            batch = empty.index_add(0, bins, count).reshape(1, -1)
            recent.copy_(torch.cat([batch, recent[:-1]]) if slide else recent + batch)
            total.add_(batch)
        return area(all_pos.sum(0), all_neg.sum(0)), area(recent_pos.sum(0), recent_neg.sum(0))


def area(positives: Tensor, negatives: Tensor) -> Tensor:
    """The area under the ROC curve of counts by bin, by trapezoids: ties inside a bin count a half."""
    hits, alarms = (torch.cumsum(counts.flip(0), 0).double() for counts in (positives, negatives))
    curve = torch.trapezoid(hits, alarms) + hits[0] * alarms[0] / 2  # the curve begins at (0, 0)
    scale = hits[-1] * alarms[-1]
    return torch.where(scale > 0, curve / scale.clamp(min=1), 0.0).reshape(1)

"""nce: noise-contrastive estimation (Gutmann and Hyvärinen 2010)."""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.layer import LayerBuilder

Sampler = tuple[Callable[[Any], Tensor], Callable[[Tensor], Tensor]]
"""Draws ids of a shape; the probability of ids."""


def nce(
    input: Variable,
    label: Variable,
    num_total_classes: int,
    sample_weight: Variable | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    num_neg_samples: int | None = None,
    name: str | None = None,
    sampler: str = "uniform",
    custom_dist: Sequence[float] | None = None,
    seed: int = 0,
    is_sparse: bool = False,
) -> Any:
    """The cost [N, 1] of telling the label from num_neg_samples random classes (10 by default).

    Weights `name`.w_0 [classes, D] and bias .b_0 [classes, 1]. sampler: "uniform", "log_uniform", or "custom_dist" with
    the probability of each class. Each run draws new classes; the program has the seed. The gradient is dense.
    """
    if seed:
        raise ConfigError(f"nce: seed={seed} of one layer is not supported; set Program.random_seed")
    negatives = 10 if num_neg_samples is None else int(num_neg_samples)
    draw, probability = _sampler(sampler, num_total_classes, custom_dist)
    layer = LayerBuilder("nce", name)
    weight = layer.parameter(param_attr, [num_total_classes, input.shape[1]], input.dtype)
    bias = layer.parameter(bias_attr, [num_total_classes, 1], input.dtype, is_bias=True)

    def cost(x: Tensor, label: Tensor, w: Tensor, b: Tensor | None, factor: Tensor | None) -> Tensor:
        true = label.long().reshape(x.shape[0], -1)
        ids = torch.cat([true, draw((x.shape[0], negatives))], 1)
        scores = torch.matmul(w[ids], x.unsqueeze(-1)).squeeze(-1)
        scores = torch.sigmoid(scores if b is None else scores + b.reshape(-1)[ids])
        noise = probability(ids).to(x.dtype) * negatives
        count = true.shape[1]
        of_true = -torch.log(scores[:, :count] / (scores[:, :count] + noise[:, :count]))
        of_noise = -torch.log(noise[:, count:] / (scores[:, count:] + noise[:, count:]))
        each = of_true.sum(1, keepdim=True) + of_noise.sum(1, keepdim=True)
        return each if factor is None else each * factor.reshape(-1, 1)

    return layer.run(cost, input, label, weight, bias, sample_weight)


def _sampler(kind: str, classes: int, custom: Sequence[float] | None) -> Sampler:
    if kind == "uniform":
        return (
            lambda shape: torch.randint(0, classes, shape),
            lambda ids: torch.full_like(ids, 1.0 / classes, dtype=torch.float32),
        )
    if kind == "log_uniform":
        top = math.log(classes + 1)
        return (
            lambda shape: (torch.exp(torch.rand(shape) * top) - 1).long().clamp(0, classes - 1),
            lambda ids: torch.log((ids + 2.0) / (ids + 1.0)) / top,
        )
    if kind != "custom_dist" or custom is None or len(custom) != classes:
        raise ConfigError(
            f"nce: sampler={kind!r}, custom_dist={custom!r}; use uniform, log_uniform, or custom_dist with "
            f"a probability for each of {classes} classes"
        )
    weights = torch.tensor([float(p) for p in custom])
    bounds = torch.cumsum(weights, 0)
    return (
        lambda shape: torch.searchsorted(bounds, torch.rand(shape), right=True).clamp(max=classes - 1),
        lambda ids: weights[ids],
    )

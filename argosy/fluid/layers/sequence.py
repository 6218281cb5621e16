"""Sequences of different lengths: cos_sim and edit_distance of 1.x; the layers sequence_* are those of static.nn."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.engine.ops.edit_distance import edit_distance as edit_distances
from argosy.framework.layer import apply
from argosy.framework.ragged import check_batch, lengths_for, segments, sums
from argosy.static.nn.sequence_pad import sequence_unpad


def cos_sim(X: Variable, Y: Variable) -> Any:
    """The cosine of the angle between the rows of X [N, D] and Y [N, D] or [1, D]: [N, 1]."""

    def cosine(x: Tensor, y: Tensor) -> Tensor:
        x, y = x.flatten(1), y.flatten(1)
        norms = x.square().sum(1, keepdim=True).sqrt() * y.square().sum(1, keepdim=True).sqrt()
        return (x * y).sum(1, keepdim=True) / norms

    return apply("cos_sim", cosine, X, Y)


def edit_distance(
    input: Variable,
    label: Variable,
    normalized: bool = True,
    ignored_tokens: Sequence[int] | None = None,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> Any:
    """(distances [sequences, 1] float32, number of sequences [1]): how many ids to insert, delete or replace.

    `input` and `label` are ragged ids; with `input_length` and `label_length` padded ones, [N, maxlen]. Ids in
    `ignored_tokens` are removed first. `normalized` divides by the length of the label.
    """
    if (input_length is None) != (label_length is None):
        raise ConfigError("edit_distance: give both input_length and label_length, or none of them")
    if input_length is not None and label_length is not None:
        input, label = sequence_unpad(input, input_length), sequence_unpad(label, label_length)
    ignored = torch.tensor(list(ignored_tokens)) if ignored_tokens else None
    lengths, label_lengths = lengths_for("edit_distance", input), lengths_for("edit_distance", label)

    def distance(x: Tensor, lengths: Tensor, y: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        check_batch(lengths, others)
        x, y = x.reshape(-1), y.reshape(-1)
        if ignored is not None:
            (x, lengths), (y, others) = _without(x, lengths, ignored), _without(y, others, ignored)
        distances = edit_distances(x, lengths, y, others)
        distances = distances / others if normalized else distances
        return distances.unsqueeze(1), torch.full((1,), lengths.shape[0])

    return apply("edit_distance", distance, input, lengths, label, label_lengths)


def _without(ids: Tensor, lengths: Tensor, ignored: Tensor) -> tuple[Tensor, Tensor]:
    """The ids of each sequence that are not ignored, and how many they are."""
    is_kept = ~torch.isin(ids, ignored)
    return ids[is_kept], sums(is_kept.to(torch.int64), lengths, segments(lengths, ids.shape[0]))

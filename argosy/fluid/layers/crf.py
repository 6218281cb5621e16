"""Linear-chain conditional random fields over ragged Variables: linear_chain_crf, crf_decoding."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

import torch
from torch import Tensor

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.engine.ops.sequence_scan import sequence_scan
from argosy.engine.ops.viterbi import viterbi
from argosy.framework.layer import LayerBuilder, apply
from argosy.framework.ragged import constant_row, lengths_for, places, rows_or, segments, sums
from argosy.static.nn.sequence_pad import sequence_pad, sequence_unpad


def linear_chain_crf(
    input: Variable, label: Variable, param_attr: Any = None, length: Variable | None = None
) -> Any:
    """The negative log likelihood of the tags of each sequence, [sequences, 1]: a cost to minimize.

    `input` [T, tags] has the scores of the rows, `label` [T, 1] their tags; with `length` both are padded, [N, maxlen,
    …]. The parameter is [2 + tags, tags]: the scores of first tags, of last tags, and of transitions from each tag.
    """
    if length is not None:
        input, label = _unpadded(input, label, length)
    layer, lengths = LayerBuilder("linear_chain_crf"), lengths_for("linear_chain_crf", input)
    transition = layer.parameter(param_attr, [input.shape[1] + 2, input.shape[1]], input.dtype)
    return layer.run(_cost, input, label, lengths, transition)


def crf_decoding(
    input: Variable, param_attr: Any, label: Variable | None = None, length: Variable | None = None
) -> Any:
    """The best tags of each sequence, [T, 1] int64; with a label, 1 where they are equal to it, and 0 elsewhere.

    `param_attr` has the name of the parameter of linear_chain_crf. With `length` the input is padded, [N, maxlen,
    tags], and so is the result, [N, maxlen].
    """
    padded_size = input.shape[1]
    if length is not None:
        if padded_size < 0:
            raise ConfigError(
                "crf_decoding: with length, the input needs a known maxlen; give it in static.data"
            )
        input, label = _unpadded(input, label, length)
    layer, lengths = LayerBuilder("crf_decoding"), lengths_for("crf_decoding", input)
    transition = layer.parameter(param_attr, [input.shape[1] + 2, input.shape[1]], input.dtype)

    def decode(x: Tensor, lengths: Tensor, transition: Tensor, label: Tensor | None) -> Tensor:
        tags: Tensor = viterbi(x, lengths, transition).unsqueeze(1)
        return tags if label is None else (tags == label.reshape(-1, 1)).to(torch.int64)

    tags = layer.run(decode, input, lengths, transition, label)
    if length is None:
        return tags
    return apply("crf_decoding", lambda x: x.squeeze(-1), sequence_pad(tags, 0, padded_size)[0])


def _unpadded(input: Variable, label: Variable | None, length: Variable) -> tuple[Any, Any]:
    """The rows of padded scores and tags, with the same lengths."""
    rows = sequence_unpad(input, length)
    return rows, None if label is None else sequence_unpad(label, lengths_for("crf", rows))


def _cost(x: Tensor, label: Tensor, lengths: Tensor, transition: Tensor) -> Tensor:
    tags = label.reshape(-1)
    torch._check(tags.shape[0] == x.shape[0], lambda: "a tag is needed for each row")
    first, last, between = transition[0], transition[1], transition[2:]
    segment = segments(lengths, x.shape[0])
    place = places(lengths, segment)
    before = tags[(torch.arange(x.shape[0]) - 1).clamp(min=0)]
    follows = torch.where(place == 0, first[tags], between[before, tags])
    ends = torch.where(place == lengths[segment] - 1, last[tags], 0.0)
    score = sums(x.gather(1, tags.unsqueeze(1)).squeeze(1) + follows + ends, lengths, segment)
    alpha, _ = sequence_scan(x, lengths, [], [transition], "crf", ["identity"], [0.0], False)
    paths = rows_or(alpha + last, lengths.cumsum(0) - 1, lengths > 0, constant_row(alpha, 0.0))
    return torch.where(lengths > 0, torch.logsumexp(paths, 1) - score, 0.0).unsqueeze(1)

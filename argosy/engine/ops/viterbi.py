"""viterbi: the best sequence of tags of a linear-chain CRF, for each sequence of rows.

    tags = viterbi(scores [T, D], lengths [B], transition [2 + D, D])

Row 0 of the transition are the scores of first tags, row 1 those of last tags, row 2 + i those of the tags after tag i.
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.sequence_scan import steps_of


def _kernel(x: Tensor, lengths: Tensor, transition: Tensor) -> Tensor:
    _, index, counts = steps_of(lengths, len(x))
    best: list[Tensor] = []  # for each step, the score of the best path to each tag
    previous: list[Tensor] = []  # and the tag before it on this path
    for step, rows in enumerate(x.index_select(0, index).split(counts) if counts else ()):
        if step == 0:
            best.append(rows + transition[0])
            previous.append(torch.empty_like(rows, dtype=torch.int64))
            continue
        scores, tags = (best[-1][: len(rows)].unsqueeze(2) + transition[2:]).max(1)
        best.append(rows + scores)
        previous.append(tags)
    paths: list[Tensor] = []
    for step in reversed(range(len(counts))):
        last = (best[step] + transition[1]).argmax(1)
        if paths:  # sequences that continue, the longest first
            following = paths[0]
            last[: len(following)] = previous[step + 1].gather(1, following.unsqueeze(1)).squeeze(1)
        paths.insert(0, last)
    tags = torch.empty_like(index)
    return tags.index_copy_(0, index, torch.cat(paths)) if paths else tags


viterbi = declare(
    "viterbi(Tensor x, Tensor lengths, Tensor transition) -> Tensor",
    _kernel,
    lambda x, lengths, transition: x.new_empty(x.shape[0], dtype=torch.int64),
)
SPEC = OpSpec(viterbi, _kernel)
